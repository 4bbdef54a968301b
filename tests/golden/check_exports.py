"""What Berth exports, loaded by transformers: a run that starts from the golden parameters and learns
nothing (learning rate 0) is exported in both types, in one file and in several; every parameter must
come back bit for bit, and the logits must be those of reference_models.py.

Usage: check_exports.py BERTH   (the program; berth-engine lies beside it)
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

import reference_models as ref
from make_goldens import HERE, MODELS, SEQ, initial_parameters


def berth(program, folder, *words):
    env = dict(os.environ, BERTH_HOME=str(folder / "home"))
    done = subprocess.run([program, *map(str, words)], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"berth {' '.join(map(str, words))}: {done.stderr}"
    return done.stdout


def finished_run(program, folder, name):
    """Two ranks, sharded; its id."""
    tokens = np.arange(40 * SEQ, dtype=np.uint16) * 7 % 83
    (folder / "tokens.u16").write_bytes(tokens.tobytes())
    offers = json.loads(berth(program, folder, "offers", "--here", "--json"))
    offer = dict(offers["offers"][0], gpus_per_node=2, provenance=None)
    (folder / "offers.json").write_text(json.dumps({"schema": offers["schema"], "offers": [offer]}))
    job = {"model": str(HERE / name / "config.json"), "tokens": 8 * SEQ, "seq": SEQ,
           "global_batch_tokens": 4 * SEQ, "precision": "fp32", "strategies": "zero3", "data": "local:tokens.u16",
           "data_kind": "uint16", "weights": f"local:{HERE / name}", "training": {"lr": 0}}
    (folder / "job.json").write_text(json.dumps(job))
    berth(program, folder, "plan", "job.json", "--offers", "offers.json", "-q", "-o", "plan.json")
    return berth(program, folder, "launch", "plan.json", "--here", "--remote-dir", folder / "work", "-q").split()[0]


def check(name, folder, config, params, dtype):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=dtype, output_loading_info=True, attn_implementation="eager")
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    state = model.state_dict()
    for key, value in params.items():
        assert torch.equal(state[key], value.to(dtype)), f"{name}: {key} differs"
    tokens = torch.arange(2 * SEQ).reshape(2, SEQ) % config["vocab_size"]
    want = ref.forward(config, {k: v.to(dtype).double() for k, v in params.items()}, tokens)
    got = model.double().eval()(tokens).logits
    apart = ((got - want).norm() / want.norm()).item()
    assert apart < 1e-5, f"{name}: logits apart by {apart:.1e}"
    return apart


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    torch.set_num_threads(1)
    for seed, (name, config) in enumerate(MODELS.items(), 1):
        params = initial_parameters(config, seed)
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            run = finished_run(program, folder, name)
            for words, dtype in (("--dtype", "fp32"), torch.float32), (("--max-file", "30000"), torch.bfloat16):
                out = folder / words[1]
                berth(program, folder, "export-weights", run, out, *words)
                files = len(list(out.glob("*.safetensors")))
                assert (files > 1) == ("--max-file" in words), f"{name}: {files} files"
                apart = check(name, out, config, params, dtype)
                print(f"{name}: {files} files of {dtype}, logits apart by {apart:.1e}")


if __name__ == "__main__":
    main()
