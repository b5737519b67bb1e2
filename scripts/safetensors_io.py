"""Reads and writes model.safetensors (one file or sharded) with numpy alone, as PyTorch's library does.

Format: 8 bytes little-endian header length n, n bytes of JSON {name: {dtype, shape, data_offsets}}, the data.
"""
import json
import os
import struct

import numpy as np

NUMPY_OF = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"
}


def bf16_to_f32(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(values):
    """Rounds to nearest, ties to even; NaN stays NaN."""
    u = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16
    return np.where(np.isnan(values), (u >> 16) | 0x40, rounded).astype("<u2")


def read_file(path):
    """{name: array} of one file. BF16 comes back as float32."""
    with open(path, "rb") as file:
        data = file.read()
    if len(data) < 8:
        raise ValueError(f"{path}: {len(data)} bytes is too short for a safetensors file")
    (length,) = struct.unpack("<Q", data[:8])
    if length > len(data) - 8:
        raise ValueError(f"{path}: header says {length} bytes, the file holds {len(data) - 8}")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in NUMPY_OF:
            raise ValueError(f"{path}: {name} is {entry['dtype']}, expected one of {', '.join(NUMPY_OF)}")
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[8 + length + begin : 8 + length + end], dtype=NUMPY_OF[entry["dtype"]])
        array = bf16_to_f32(array) if entry["dtype"] == "BF16" else array
        tensors[name] = array.reshape(entry["shape"])
    return tensors


def write_file(path, tensors, dtype="F32"):
    """Writes {name: array} with every tensor stored as `dtype` (F32, F64, F16 or BF16)."""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, array in tensors.items():
        stored = f32_to_bf16(array) if dtype == "BF16" else np.ascontiguousarray(array, dtype=NUMPY_OF[dtype])
        blobs.append(stored.tobytes())
        end = offset + len(blobs[-1])
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_directory(directory):
    """{name: array} of a Hugging Face directory: model.safetensors, or the shards its index names."""
    single = os.path.join(directory, "model.safetensors")
    index = single + ".index.json"
    if os.path.exists(single):
        return read_file(single)
    if not os.path.exists(index):
        raise ValueError(f"{directory}: neither model.safetensors nor model.safetensors.index.json is there")
    with open(index, encoding="utf-8") as file:
        weight_map = json.load(file)["weight_map"]
    tensors = {}
    for shard in sorted(set(weight_map.values())):
        tensors.update(read_file(os.path.join(directory, shard)))
    missing = sorted(set(weight_map) - set(tensors))
    if missing:
        raise ValueError(f"{index}: names {missing[0]}, which no shard holds")
    return tensors
