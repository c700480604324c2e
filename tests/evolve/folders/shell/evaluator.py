import subprocess


def evaluate(program_path):
    hits = 0
    for n in range(6):
        done = subprocess.run(["sh", program_path, str(n)], capture_output=True, text=True, timeout=10)
        hits += done.stdout.strip() == str(n * n)
    return {"combined_score": hits / 6}
