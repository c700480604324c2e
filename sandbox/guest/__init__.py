"""What runs inside the sandbox image. Never imported by the host; standard library only."""
