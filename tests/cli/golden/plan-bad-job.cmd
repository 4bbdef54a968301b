echo '{"model": "gpt2", "tokns": 5}' | "$berth" plan - --json --reproducible
