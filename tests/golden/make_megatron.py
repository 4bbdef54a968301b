"""A small data set as Megatron writes it: see README.md beside this file.

Usage: make_megatron.py [--check]   writes, or compares with, tests/golden/megatron.

The writer is megatron-core's own IndexedDatasetBuilder. Its module is loaded by itself, with
stand-ins for what it imports and does not need to write a file: the package as a whole wants a GPU
stack of its own version.
"""

import importlib.metadata
import pathlib
import sys
import tempfile
import types
from unittest import mock

import numpy as np

HERE = pathlib.Path(__file__).parent / "megatron"

# Documents as lists of sequences, so that the ends of sequences are not all ends of documents.
DOCUMENTS = [[[5, 6, 7], [8, 9]], [[10]], [[11, 12, 13, 14], [15], [16, 17]]]
TYPES = ["uint8", "int8", "int16", "uint16", "int32", "int64"]


class Sequence(list):
    """As much of a tensor as the builder uses."""

    def numpy(self):
        return np.array(self)

    def numel(self):
        return len(self)


def load_builder():
    path = importlib.metadata.distribution("megatron-core").locate_file(
        "megatron/core/datasets/indexed_dataset.py")
    module = types.ModuleType("indexed_dataset")
    msc = mock.MagicMock()
    msc.MultiStorageClientFeature.is_enabled.return_value = False
    names = ["torch", "megatron", "megatron.core", "megatron.core.datasets", "megatron.core.utils",
             "megatron.core.datasets.object_storage_utils"]
    stand_ins = {name: mock.MagicMock() for name in names} | {"megatron.core.msc_utils": msc}
    stand_ins["torch"].utils.data.Dataset = object
    with mock.patch.dict(sys.modules, stand_ins):
        exec(compile(pathlib.Path(path).read_text(), str(path), "exec"), module.__dict__)
    return module.IndexedDatasetBuilder


def write(folder, dtype, documents, name):
    prefix = folder / name
    builder = load_builder()(str(prefix) + ".bin", dtype=getattr(np, dtype))
    for document in documents:
        for sequence in document:
            builder.add_item(Sequence(sequence))
        builder.end_document()
    builder.finalize(str(prefix) + ".idx")
    return [pathlib.Path(str(prefix) + end) for end in (".bin", ".idx")]


def main():
    is_check = sys.argv[1:] == ["--check"]
    HERE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        whole = [[sum(document, [])] for document in DOCUMENTS]
        rows = [(dtype, DOCUMENTS, dtype) for dtype in TYPES]
        rows += [(dtype, whole, "whole-" + dtype) for dtype in ("uint16", "int32")]
        for dtype, documents, name in rows:
            for made in write(pathlib.Path(folder), dtype, documents, name):
                stored = HERE / made.name
                if is_check and stored.read_bytes() != made.read_bytes():
                    sys.exit(f"{stored} differs")
                if not is_check:
                    stored.write_bytes(made.read_bytes())
    print("megatron: " + ("equal" if is_check else "written"))


main()
