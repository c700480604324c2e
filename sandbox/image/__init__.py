"""The sandbox image: Debian, Python, numpy and the supervisor."""
