"$berth" plan --model lama-3.1-8b --tokens 1B
