"""Reference ids of the `tokenizers` package, for small tokenizers in the styles that models use.

Usage: make_tokenizers.py [--check]   writes, or compares with, tests/golden/tokenizers.

Training texts and cases are made here, so nothing else is needed. The tokenizers are stored as the
package saves them, but for what newer or older versions of it write differently: merges as texts
or as pairs.
"""

import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from tokenizers import decoders, processors

HERE = pathlib.Path(__file__).parent / "tokenizers"

# The regular expressions as the tokenizer.json files of these families have them.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")

WORDS = """the of and to in a is that for it as was with be by on not he his but at are this have from
or had an they which one you were her all she there would their we him been has when who will more no
if out so said what up its about into than them can only other new some could time these two may then
do first any my now such like our over man me even most made after also did many before must through
back years where much your way well down should because each just those people how too little state
good very make world still own see men work long get here between both life being under never day same
another know while last might us great old year off come since against go came right used take three
naïve café déjà vu Straße größer señor façade coöperate Ελληνικά γλώσσα русский язык слово 中文 日本語
한국어 文字 こんにちは 안녕하세요 שלום عالم مرحبا हिन्दी नमस्ते ไทย 🙂 🎉 don't I'll we've it's they're you'd""".split()


def training_texts():
    rng = random.Random(20240520)
    texts = []
    for _ in range(600):
        words = [rng.choice(WORDS) for _ in range(rng.randint(3, 20))]
        text = " ".join(words).capitalize() + rng.choice([".", "!", "?", " ...", ";", ".\n", "\n\n", ",   "])
        texts.append(text + rng.choice(["", " 12", " 2024", "\t\t", "    return x\n", " 3.14159"]))
    return texts


def byte_level(add_prefix_space=False, use_regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def split(regex):
    return pre_tokenizers.Split(Regex(regex), behavior="isolated", invert=False)


# name: normalizer, pre_tokenizer, special tokens, tokens added beside, ignore_merges, merges as pairs
STYLES = {
    "gpt2": (None, byte_level(), ["<|endoftext|>"], [], False, False),
    "gpt2-prefix": (None, byte_level(add_prefix_space=True), ["<|endoftext|>"], [], False, True),
    "llama3": (None, pre_tokenizers.Sequence([split(LLAMA3), byte_level(use_regex=False)]),
               ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], [], True, True),
    "qwen2": (normalizers.NFC(), pre_tokenizers.Sequence([split(QWEN2), byte_level(use_regex=False)]),
              ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
              [AddedToken("<tool_call>", normalized=False, special=False),
               AddedToken("<caf\u0065\u0301>", normalized=True, special=False)], False, False),
    "smollm2": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()]),
                ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"], [], False, True),
}


def make_tokenizer(name):
    normalizer, pre, special, added, ignore_merges, pairs = STYLES[name]
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(training_texts(), trainer)
    t.add_tokens(added)
    v = json.loads(t.to_str())
    merges = [m.split(" ") if isinstance(m, str) else m for m in v["model"]["merges"]]
    v["model"]["merges"] = merges if pairs else [" ".join(m) for m in merges]
    if ignore_merges:  # whole words that no merge makes
        v["model"]["vocab"]["Ġwhole"] = len(v["model"]["vocab"])
    return json.dumps(v, ensure_ascii=False, indent=1) + "\n"


# --- cases ---

NAMED = {
    "empty": "",
    "plain": "The quick brown fox jumps over the lazy dog.",
    "leading space": "  two spaces before, one after ",
    "one space": " ",
    "many spaces": "a" + " " * 2 + "b" + " " * 31 + "c" + " " * 1000,
    "tabs and newlines": "x\t\ty\n\n\nz\r\n\r\n  \n w\n",
    "digits": "1 12 123 1234 12345 1234567890123 3.14159 1,000,000 ½ ² ٣٤٥ 四",
    "contractions": "don't DON'T I'll I'LL we've WE'VE it's IT'S 'tis they're THEY'Re you'd Y'ALL'D'VE rock'n'roll",
    "long s": "it'\u017f IT'\u017f \u212a'\u017f",
    "combining": "cafe\u0301 e\u0301\u0323 o\u0302\u0301 A\u030a \u0041\u0301\u0328 \u1e69 \u0301alone",
    "composed": "caf\u00e9 \u00c5 \u212b \u1ed9 \u0344 \u2126 \uf900 \u0958",
    "hangul": "\u1112\u1161\u11ab\u1100\u116e\u11a8 한국어 \uac00\u11a8",
    "emoji": "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪 ❤️ 1️⃣ 🙂🙂🙂",
    "cjk": "今天天气很好。我们去公园吧！東京は日本の首都です。ｶﾀｶﾅ",
    "right to left": "שלום עולם! مرحبا بالعالم، كيف حالك؟ \u200f\u202eabc\u202c",
    "indic and thai": "नमस्ते दुनिया क्‍ष ภาษาไทย ਪੰਜਾਬੀ தமிழ்",
    "special inside": "a<|endoftext|>b <|im_start|>user\nhi<|im_end|>\n<|begin_of_text|><|eot_id|><tool_call><repo_name>",
    "special cut": "<|endoftext <|endof|endoftext|> <||endoftext|>|> <|endoftext|><|endoftext|>",
    "normalized added": "x<cafe\u0301>y <caf\u00e9>z <cafe>",
    "whole word": "the whole whole,whole  whole",
    "zero and controls": "a\x00b\x01\x7f\x80\x9f\x85c\x1c\x1d\x1e\x1f",
    "white space": "a\u00a0b\u1680c\u180ed\u2003e\u2028f\u2029g\u202fh\u205fi\u3000j\u200bk\ufeffl\x0b\x0c\x85m \u00a0 n\u180e \u180e",
    "code": "def f(x):\n    if x>0:\n\t\treturn {'a': [1,2]}  # done\n\n\nclass A_b:\n    pass\n",
    "punctuation": "!!! ??? ... --- ''' \"\"\" `~^ $%&*()[]{}<>|\\/ ¿¡ «» „“ ‘’ … — –\n\n?\r\n",
    "case": "ßẞ İi ıI ŉ ǅ ﬁ ﬀ Ω",
    "one long word": "a" * 500 + "ab" * 300 + "the" * 100,
    "long mixed": "thethatandofto" * 40 + "é" * 70 + "字" * 90,
    "astral": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠜎𠜱 \U0010ffff \U000e0001",
    "marks and symbols": "© ® ™ € £ ¥ № ℃ ∑∫ ♠♣ ①②③ Ⅷ ⅷ ª º",
    "lines": "".join(f"Line {i}: the state of the world\n" for i in range(12)),
}

BAD_UTF8 = {
    "lone continuation": b"a\x80b\xbf",
    "cut at the end": b"abc \xe4\xb8",
    "cut inside": b"\xf0\x9f\x98 ok \xf0\x9f\x98\x80",
    "overlong": b"\xc0\xaf \xe0\x80\xaf \xf0\x80\x80\xaf",
    "surrogate": b"x\xed\xa0\x80y\xed\xbf\xbfz",
    "too high": b"\xf4\x90\x80\x80 \xf5\x80\x80\x80 \xff\xfe",
    "mixed": b"the \xc3\xa9 and \xc3 and \xe2\x82 and \xe2\x82\xac",
}

POOL = list("aAzZ09 \n\t\r'’.,!?-_<|>(){}#@éßñ字語한\u0301\u0323\u200d\u00a0\u3000\u2028🙂👩½²٣אם") + [
    " the", "and", "'s", "'LL", "<|endoftext|>", "  ", "\n\n", "12", "123", "2024", "don't", "\r\n",
    "naïve", "русский", "世界", "<|im_end|>", "\u1100\u1161", "e\u0301"]


def cases():
    named = [(name, text.encode()) for name, text in NAMED.items()]
    named += [("bad utf-8: " + name, raw) for name, raw in BAD_UTF8.items()]
    rng = random.Random(7)
    for i in range(150):
        text = "".join(rng.choice(POOL) for _ in range(rng.randint(1, 40)))
        named.append((f"random {i}", text.encode()))
    return named


def make_all():
    files = {f"{name}.json": make_tokenizer(name) for name in STYLES}
    made = {name: Tokenizer.from_str(files[f"{name}.json"]) for name in STYLES}
    lines = []
    for name, raw in cases():
        text = raw.decode("utf-8", errors="replace")
        ids = {n: t.encode(text, add_special_tokens=False).ids for n, t in made.items()}
        lines.append(json.dumps({"name": name, "hex": raw.hex(), "ids": ids}))
    files["cases.jsonl"] = "\n".join(lines) + "\n"
    return files


def main():
    is_check = sys.argv[1:] == ["--check"]
    HERE.mkdir(exist_ok=True)
    for name, text in make_all().items():
        path = HERE / name
        if is_check and path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} differs")
        if not is_check:
            path.write_text(text, encoding="utf-8")
    print("tokenizers: " + ("equal" if is_check else "written"))


main()
