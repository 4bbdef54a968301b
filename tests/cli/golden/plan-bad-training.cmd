echo '{"model": "gpt2", "tokens": "1B", "training": {"learning_rate": 1e-3}}' | $berth plan -
