"""Files of weights as they come: read without running them, or refused in a line that says what they are."""

import argparse
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import safetensors.torch
import torch

from vcycle.errors import CheckpointError
from vcycle.nn.weights.caffe2 import pyslowfast_name
from vcycle.nn.weights.files import read_weights
from vcycle.tasks.recognition.models import build_model
from vcycle.tasks.recognition.weights.keys import foreign_keys
from vcycle.tasks.recognition.weights.loading import load_pretrained
from vcycle.tasks.recognition.weights.record import Record, pyslowfast_record

STATE = {"layer.weight": torch.arange(12.0).reshape(3, 4), "layer.bias": torch.arange(3.0)}


def same(state, other=STATE):
    assert state.keys() == other.keys()
    return all(torch.equal(state[key], other[key]) for key in other)


def refused(path):
    """What is said of a file that is not read: one line that names it."""
    with pytest.raises(CheckpointError) as caught:
        read_weights(path)
    text = str(caught.value)
    assert text.startswith(f"weights {path}")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("container", [None, "model_state", "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "module._orig_mod.", "model."])
@pytest.mark.parametrize("as_zip", [True, False])
def test_pytorch_files_are_read_whatever_the_weights_are_wrapped_in(tmp_path, container, prefix, as_zip):
    state = {prefix + key: value for key, value in STATE.items()}
    data = state if container is None else {"epoch": 3, container: state, "optimizer": {"lr": 0.1}}
    torch.save(data, tmp_path / "x.pth", _use_new_zipfile_serialization=as_zip)
    assert same(read_weights(tmp_path / "x.pth").state)


@pytest.mark.parametrize(("averaged", "plain"), [("averaged", "model"), ("params_ema", "params")])
def test_averaged_weights_are_taken_where_there_are_both(tmp_path, averaged, plain):
    other = {key: value + 1 for key, value in STATE.items()}
    torch.save({plain: other, averaged: STATE}, tmp_path / "x.pth")
    assert same(read_weights(tmp_path / "x.pth").state)


def test_what_training_scripts_keep_beside_weights_is_no_obstacle(tmp_path):
    beside = {"args": argparse.Namespace(lr=0.1), "lr": np.float64(0.1), "best": np.float32(0.5), "cfg": "a: 1"}
    torch.save({"model": STATE, **beside}, tmp_path / "x.pth")
    assert same(read_weights(tmp_path / "x.pth").state)


def test_safetensors_are_read_with_what_they_say(tmp_path):
    safetensors.torch.save_file(STATE, tmp_path / "x.bin", {"about": "a test"})
    weights = read_weights(tmp_path / "x.bin")
    assert same(weights.state)
    assert weights.metadata == {"about": "a test"}
    assert weights.source == str(tmp_path / "x.bin")


def blobs(**more):
    """Blobs of a SlowFast as Caffe2 has them, few and small."""
    arrays = {
        "conv1_w": np.ones((4, 3, 1, 7, 7), np.float32),
        "res_conv1_bn_riv": np.full(4, 2, np.float32),
        "t_pool1_subsample_bn_s": np.full(2, 3, np.float32),
        "pred_b": np.arange(5, dtype=np.float32),
        "conv1_w_momentum": np.zeros((4, 3, 1, 7, 7), np.float32),
        "lr": np.float32(0.1),
        "model_iter": np.array([7]),
    }
    return {"blobs": arrays | more}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL))
def test_caffe2_pickles_are_read_under_the_names_of_pyslowfast(tmp_path, protocol):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(blobs(), protocol=protocol))
    state = read_weights(tmp_path / "x.pkl").state
    expected = {
        "s1.pathway0_stem.conv.weight": torch.ones(4, 3, 1, 7, 7),
        "s1.pathway0_stem.bn.running_var": torch.full((4,), 2.0),
        "s1_fuse.bn.weight": torch.full((2,), 3.0),
        "head.projection.bias": torch.arange(5.0),
    }
    assert same(state, expected)


PYTHON_2 = (
    b"\x80\x02}q\x01U\x05blobsq\x02}q\x03U\x06pred_bq\x04cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\nndarray\n"
    b"q\x06K\x00\x85U\x01b\x87Rq\x07(K\x01K\x02\x85cnumpy\ndtype\nq\x08U\x02f4K\x00K\x01\x87Rq\t(K\x03U\x01<NNNJ\xff\xff\xff"
    b"\xffJ\xff\xff\xff\xffK\x00tb\x89U\x08\x00\x00\x80?\x00\x00\x00\xc0tbss."
)


def test_a_pickle_of_python_2_has_its_numbers_as_text(tmp_path):
    (tmp_path / "x.pkl").write_bytes(PYTHON_2)
    assert same(read_weights(tmp_path / "x.pkl").state, {"head.projection.bias": torch.tensor([1.0, -2.0])})


@pytest.mark.parametrize(
    ("blob", "name"),
    [
        ("conv1_w", "s1.pathway0_stem.conv.weight"),
        ("t_conv1_w", "s1.pathway1_stem.conv.weight"),
        ("t_res_conv1_bn_b", "s1.pathway1_stem.bn.bias"),
        ("t_pool1_subsample_w", "s1_fuse.conv_f2s.weight"),
        ("t_res3_3_branch2c_bn_subsample_w", "s3_fuse.conv_f2s.weight"),
        ("t_res4_5_branch2c_bn_subsample_bn_rm", "s4_fuse.bn.running_mean"),
        ("res2_0_branch1_w", "s2.pathway0_res0.branch1.weight"),
        ("res2_0_branch1_bn_s", "s2.pathway0_res0.branch1_bn.weight"),
        ("t_res5_2_branch2a_bn_riv", "s5.pathway1_res2.branch2.a_bn.running_var"),
        ("res4_22_branch2c_w", "s4.pathway0_res22.branch2.c.weight"),
        ("nonlocal_conv3_1_theta_w", "s3.pathway0_nonlocal1.conv_theta.weight"),
        ("nonlocal_conv4_5_out_b", "s4.pathway0_nonlocal5.conv_out.bias"),
        ("nonlocal_conv4_5_bn_s", "s4.pathway0_nonlocal5.bn.weight"),
        ("pred_w", "head.projection.weight"),
        ("conv1_w_momentum", None),
        ("model_iter", None),
    ],
)
def test_each_kind_of_blob_has_its_name(blob, name):
    assert pyslowfast_name(blob) == name


def caffe2_names(name, blocks):
    """Caffe2's names of PySlowFast's, made from the last word on."""
    layer, _, end = name.rpartition(".")
    if end == "num_batches_tracked":
        return []
    norm = "bn" in layer.rpartition(".")[2]
    ends = {"weight": "s" if norm else "w", "bias": "b", "running_mean": "rm", "running_var": "riv"}
    fast = "t_" if "pathway1" in layer else ""
    stage, _, rest = layer.partition(".")
    if layer == "head.projection":
        blob = "pred"
    elif stage == "s1":
        blob = f"{fast}res_conv1_bn" if norm else f"{fast}conv1"
    elif stage.endswith("_fuse"):
        number = int(stage[1])
        blob = "t_pool1" if number == 1 else f"t_res{number}_{blocks[number - 2] - 1}_branch2c_bn"
        blob += "_subsample_bn" if norm else "_subsample"
    elif "nonlocal" in rest:
        block, part = rest.removeprefix("pathway0_nonlocal").split(".")
        blob = f"nonlocal_conv{stage[1]}_{block}_{part.removeprefix('conv_')}"
    else:
        block, _, part = rest[len("pathway0_res") :].partition(".branch")
        blob = f"{fast}res{stage[1]}_{block}_branch{part.replace('.', '')}"
    return [f"{blob}_{ends[end]}"]


@pytest.mark.parametrize(
    ("model", "blocks"), [("slowfast_8x8_r50", (3, 4, 6, 3)), ("slowfast_8x8_r101", (3, 4, 23, 3)), ("i3d_nl_r50", ())]
)
def test_every_tensor_of_a_network_has_a_blob(model, blocks):
    with torch.device("meta"):
        names = foreign_keys(build_model(model, 400).state_dict(), "pyslowfast").values()
    blobs = {blob: name for name in names for blob in caffe2_names(name, blocks)}
    assert len(blobs) > 0.8 * len(names)
    assert {blob: pyslowfast_name(blob) for blob in blobs} == blobs


def test_a_network_comes_back_from_its_blobs(tmp_path):
    narrow = {"stem_width": 8, "widths": [8, 8, 8, 8], "blocks": [1, 2, 1, 1]}
    model, other = (build_model("slowfast_8x8_r50", 5, **narrow) for _ in range(2))
    state = model.state_dict()
    arrays = {
        blob: state[key].numpy()
        for key, name in foreign_keys(state, "pyslowfast").items()
        for blob in caffe2_names(name, narrow["blocks"])
    }
    (tmp_path / "x.pkl").write_bytes(pickle.dumps({"blobs": arrays}, protocol=2))
    taken = load_pretrained(other, read_weights(tmp_path / "x.pkl"))
    assert (taken.tensors, taken.naming) == (len(arrays), "PySlowFast's names")
    assert all(torch.equal(value, state[key]) for key, value in other.state_dict().items())


# What is refused --------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there(tmp_path):
    assert "No such file" in refused(tmp_path / "x.pth")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "this is a web page, not weights"),
        (b"\n  <html lang='en'>", "this is a web page, not weights"),
        (b"\xef\xbb\xbf<html>", "this is a web page, not weights"),
        (b"<Error><Code>AccessDenied</Code></Error>", "this is text, not weights: '<Error><Code>AccessDenied<"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a pointer of Git LFS"),
        (b"GIF89a\x10\0\xff\0 and so on", r"no file of weights begins with b'GIF89a"),
        (b'{"message": "Not Found"}', """this is text, not weights: '{"message": "Not Found"}'"""),
    ],
)
@pytest.mark.parametrize("name", ["x.pth", "x.safetensors", "x.pkl"])
def test_what_a_download_left_in_place_of_weights_is_named(tmp_path, content, said, name):
    (tmp_path / name).write_bytes(content)
    assert said in refused(tmp_path / name)


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ("readme.txt", "this is an archive (zip), and not one that PyTorch wrote"),
        (
            "x/constants.pkl",
            "this is a TorchScript program, which would have to be run; accepted: its state_dict alone",
        ),
    ],
)
def test_an_archive_of_something_else_is_not_called_damaged(tmp_path, member, said):
    with zipfile.ZipFile(tmp_path / "x.pth", "w") as archive:
        archive.writestr(member, "")
    assert said in refused(tmp_path / "x.pth")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors", "pickle"])
def test_a_file_that_was_cut_short_is_named_as_such(tmp_path, kind, share):
    path, large = tmp_path / "x", {"w": torch.rand(64, 64)}
    if kind == "safetensors":
        safetensors.torch.save_file(large, path)
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"blobs": {"pred_w": large["w"].numpy()}}))
    else:
        torch.save(large, path, _use_new_zipfile_serialization=kind == "zip")
    assert read_weights(path).state
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    assert "the file is cut short or damaged" in refused(path)


def test_a_flipped_bit_of_an_archive_is_found(tmp_path):
    path = tmp_path / "x.pth"
    torch.save(STATE, path)
    content = bytearray(path.read_bytes())
    content[content.index(STATE["layer.weight"].numpy().tobytes())] ^= 1
    path.write_bytes(content)
    assert "has a wrong checksum" in refused(path)


class Harmful:
    def __reduce__(self):
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("kind", ["zip", "legacy", "pickle", "blobs", "protocol 0"])
def test_a_file_that_would_run_code_is_refused_and_not_run(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.pth"
    if kind in ("zip", "legacy"):
        torch.save({"model_state": STATE, "cfg": Harmful()}, path, _use_new_zipfile_serialization=kind == "zip")
    else:
        data = blobs(harmful=Harmful()) if kind == "blobs" else {"model": Harmful()}
        path.write_bytes(pickle.dumps(data, protocol=0 if kind == "protocol 0" else 2))
    said = refused(path)
    assert "posix.system would have to be run to read it" in said
    assert [file.name for file in tmp_path.iterdir()] == ["x.pth"]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (b"cbuiltins\neval\n(S'1'\ntR.", "builtins.eval"),
        (b"cnumpy.core.multiarray\nfromfile\n(S'/etc/passwd'\ntR.", "numpy.core.multiarray.fromfile"),
        (b"ctorch.hub\nload\n(S'a'\ntR.", "torch.hub.load"),
        (b"cnumpy\nndarray.tofile\n.", "numpy.ndarray.tofile"),
    ],
)
def test_only_what_arrays_are_made_of_is_called(tmp_path, call, name):
    (tmp_path / "x.pkl").write_bytes(b"\x80\x04" + call)
    assert f"refused, as {name} would have to be run" in refused(tmp_path / "x.pkl")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([1, 2], "the file holds list, not named tensors"),
        ({"epoch": 3, "loss": 0.5}, "no weights among what the file holds (epoch, loss)"),
        ({"model_state": {}}, "no weights among what the file holds (nothing)"),
        ({"model": {"a": 1}}, "no weights among what the file holds (a)"),
    ],
)
def test_a_file_without_weights_tells_what_it_has(tmp_path, data, said):
    torch.save(data, tmp_path / "x.pth")
    assert said in refused(tmp_path / "x.pth")


@pytest.mark.parametrize("data", [[1], {"weights": {}}, {"blobs": [1]}, {"blobs": {}}, {"blobs": {"a": "b"}}])
def test_a_pickle_without_blobs_is_refused(tmp_path, data):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(data))
    assert "blobs" in refused(tmp_path / "x.pkl")


def test_safetensors_with_nothing_in_them_or_a_wrong_length_are_refused(tmp_path):
    safetensors.torch.save_file({}, tmp_path / "none")
    assert "the file holds no tensors" in refused(tmp_path / "none")
    (tmp_path / "long").write_bytes(struct.pack("<Q", 1 << 40) + b"{}")
    assert "the file is cut short or damaged" in refused(tmp_path / "long")


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "x").mkdir()
    assert "Is a directory" in refused(tmp_path / "x")


def described(
    kind=b"f4", flags=b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00", shape=b"K\x02\x85", raw=b"C\x08" + bytes(8)
):
    """A pickle of one array as a hostile file describes it, the lengths that it claims among it."""
    dtype = b"cnumpy\ndtype\nU" + bytes([len(kind)]) + kind + b"K\x00K\x01\x87R(K\x03U\x01<" + flags + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return b"\x80\x02}U\x05blobs}U\x06pred_b" + array + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tbss."


def test_a_described_array_is_read(tmp_path):
    (tmp_path / "x.pkl").write_bytes(described())
    assert same(read_weights(tmp_path / "x.pkl").state, {"head.projection.bias": torch.zeros(2)})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (described(kind=b"O8"), "an array is of 'O8'; accepted: numbers"),
        (described(kind=b"V8"), "an array is of 'V8'; accepted: numbers"),
        (described(kind=b"f4,O"), "an array is of 'f4,O'; accepted: numbers"),
        (described(kind=b"f9"), "its blobs hold no arrays of numbers"),
        (described(flags=b"NU\x01a\x85}J\x08\x00\x00\x00K\x01K\x3f"), "an array has no plain dtype"),
        (
            described(shape=b"\x8a\x06\x00\x00\x00\x00\x00\x01\x85"),
            "an array of shape 1099511627776 and f4 has 8 bytes",
        ),
        (described(shape=b"J\xfe\xff\xff\xff\x85"), "an array of f4 has no plain shape"),
        (described(shape=b"K\x01K\x02\x86"), None),
        (described(raw=b"C\x07" + bytes(7)), "an array of shape 2 and f4 has 7 bytes"),
        (described(raw=b"K\x05"), "an array has no bytes"),
        (described(raw=b"\x8e" + struct.pack("<Q", 1 << 40)), "it ends within a value"),
        (b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"a", "it ends within a value"),
        (b"\x80\x04}r" + struct.pack("<I", 2**32 - 1) + b".", "a pickle without Caffe2's blobs"),
        (b"\x80\x02" + b"]" * 1_100_000 + b".", "it has more than 1,000,000 opcodes"),
        (b"\x80\x02})" + b"q\x00h\x00\x86" * 64 + b"K\x00s.", "a key is tuple"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "opcode '\\x81' has no place in a pickle of arrays"),
        (b"\x80\x02cnumpy\nndarray\n(\x8a\x06\x00\x00\x00\x00\x00\x01tR.", "a pickle without Caffe2's blobs"),
        (b"\x80\x02cnumpy\nndarray\n(K\x01tR(K\x01tb.", "it changes what is neither an array nor a dtype"),
        (b"\x80\x02}U\x05blobscnumpy\nndarray\ns.", "a pickle without Caffe2's blobs"),
        (b"\x80\x02R", "a value is missing"),
        (b"\x80\x02h\x05.", "it remembers nothing under 5"),
        (b"\x80\x02" + bytes(1000), "opcode '\\x00' has no place"),
    ],
)
def test_nothing_that_a_pickle_claims_is_made_before_it_is_checked(tmp_path, content, said):
    (tmp_path / "x.pkl").write_bytes(content)
    read_weights_or_refused = refused if said is not None else read_weights
    tracemalloc.start()
    found = read_weights_or_refused(tmp_path / "x.pkl")
    assert tracemalloc.get_traced_memory()[1] < 100 * len(content) + (1 << 20)
    tracemalloc.stop()
    assert said is None or said in found


def test_one_array_under_many_names_takes_no_more_than_the_file_has(tmp_path):
    array = np.zeros(1 << 16, np.float32)
    (tmp_path / "x.pkl").write_bytes(pickle.dumps({"blobs": {f"blob{n}": array for n in range(5_000)}}))
    tracemalloc.start()
    assert "its arrays take more bytes than the file has" in refused(tmp_path / "x.pkl")
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_arrays_of_any_float_byte_order_and_layout_are_read(tmp_path, order, kind):
    array = np.arange(6, dtype=f"{order}{kind}").reshape(2, 3)
    arrays = {"a": array, "b": np.asfortranarray(array), "c": np.array(3, dtype=array.dtype)}
    (tmp_path / "x.pkl").write_bytes(pickle.dumps({"blobs": OrderedDict(arrays)}, protocol=2))
    state = read_weights(tmp_path / "x.pkl").state
    assert all(np.array_equal(state[name].numpy(), arrays[name]) for name in arrays)


def test_numbers_of_numpy_in_a_checkpoint_reach_no_constructor_of_numpy(tmp_path):
    path = tmp_path / "x.pth"
    torch.save({"model": STATE, "lr": np.float64(0.1)}, path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    assert b"f8" in content
    path.write_bytes(content.replace(b"X\x02\x00\x00\x00f8", b"X\x02\x00\x00\x00O8"))
    assert same(read_weights(path).state)  # NumPy would take the number's bytes as the address of an object


def bomb(levels=40):
    """A few lines that stand for 10 ** levels values."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "config",
    [
        bomb() + "\nNONLOCAL: {LOCATION: *a39}\nTRAIN: {DATASET: *a39}",
        "[" * 5_000,
        "DATA: {MEAN: [0x" + "f" * 500 + ", 1, 1]}",
        "TRAIN: {DATASET: 0x" + "f" * 5000 + "}",
        "a: " + "1:" * 200_000 + "1",
    ],
)
def test_a_configuration_that_cannot_be_looked_at_says_nothing_of_the_weights(tmp_path, config):
    torch.save({"model_state": STATE, "cfg": config}, tmp_path / "x.pyth")
    weights = read_weights(tmp_path / "x.pyth")
    assert same(weights.state)
    assert pyslowfast_record(weights.config) == Record()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_a_fifo_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x")
    assert "this is a FIFO, not a regular file" in refused(tmp_path / "x")


def test_a_name_that_no_file_can_have(tmp_path):
    (tmp_path / "x").symlink_to("x")
    assert "Too many levels of symbolic links" in refused(tmp_path / "x")
    assert "not a name that a file can have" in refused(tmp_path / "a\0b")


@pytest.mark.parametrize("head", [b"\x80\x02", b"}q", b"(d", b"\0" * 16, b"PK\x03\x04", b"\x10" + b"\0" * 7 + b"{"])
def test_a_large_file_is_refused_by_its_head(tmp_path, head):
    with (tmp_path / "x").open("wb") as sparse:
        sparse.write(head)
        sparse.truncate(3 << 30)
    tracemalloc.start()
    assert refused(tmp_path / "x")
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
