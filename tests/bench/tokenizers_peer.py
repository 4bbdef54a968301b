"""The `tokenizers` package as the peer of tests/bench/tokenize.c, on one thread.

Usage: tokenizers_peer.py TEXT TOKENIZER.json

Trains the tokenizer on the text where there is none yet (32,000 tokens, in Llama 3's style), then
for each line on standard input encodes the text and prints the seconds that took and the number of
tokens. The text is cut into documents at the places that the other side cuts it.
"""

import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def train(path, documents):
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=32000, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(documents, trainer)
    t.save(path)


def main():
    text, path = sys.argv[1:]
    with open(text, encoding="utf-8", errors="replace", newline="") as f:
        documents = f.read().split("\x00")
    if not os.path.exists(path):
        train(path, documents)
    t = Tokenizer.from_file(path)
    encode = getattr(t, "encode_batch_fast", t.encode_batch)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        n = sum(len(e.ids) for e in encode(documents, add_special_tokens=False))
        print(time.perf_counter() - start, n, flush=True)


main()
