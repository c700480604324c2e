def evaluate(prompt_path):
    with open(prompt_path) as file:
        words = file.read().lower().split()
    return {"short": 1.0 / (1 + len(words)), "polite": float("please" in words)}
