"""Every ONNX file of onnx_cases in onnxruntime, against the logits of the models they were made from."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file

FOLDER = Path(sys.argv[1])


def check(path: Path) -> float:
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""} and not model.functions
    described = {entry.key: entry.value for entry in model.metadata_props}
    config = json.loads(described["sape2"])
    assert json.loads(described["class_names"]) == config["class_names"]
    assert json.loads(described["mean"]) == config["mean"] and json.loads(described["std"]) == config["deviation"]
    assert described["input"].startswith("RGB pixels" if config["vit"]["channels"] == 3 else "pixels")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (images,), (logits,) = session.get_inputs(), session.get_outputs()
    assert images.name == "images" and logits.name == "logits"
    expected = load_file(path.with_suffix(".safetensors"))
    assert images.shape == ["batch", *expected["images"].shape[1:]]
    assert logits.shape == ["batch", expected["logits"].shape[1]]
    assert np.abs(expected["logits"]).max() > 0.1
    worst = 0.0
    for count in (3, 1):  # the number of images is open
        (found,) = session.run(None, {"images": expected["images"][:count]})
        worst = max(worst, float(np.abs(found - expected["logits"][:count]).max()))
    assert worst < 1e-4, f"{path.stem}: the logits differ by {worst}"
    return worst


paths = sorted(FOLDER.glob("*.onnx"))
assert len(paths) > 100, f"only {len(paths)} files in {FOLDER}"
opsets = {onnx.load(path).opset_import[0].version for path in paths}
assert opsets == set(range(17, 24)), opsets
worst = max((check(path), path.stem) for path in paths)
print(f"{len(paths)} files; the largest difference of logits is {worst[0]:.1e}, of {worst[1]}")
