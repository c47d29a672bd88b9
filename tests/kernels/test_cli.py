"""`llmlab kernel check`: what it prints and how it exits."""

import numpy as np
import pytest

from llmlab import cli

TEXT = """
extern "C" __global__ void add(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1.0f;
}
template <class T> __global__ void scale(T* y, const T* x, float by) {
  y[threadIdx.x] = T(float(x[threadIdx.x]) * by);
}
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.cu").write_text(TEXT)
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff\xfe")

    def run(line):
        code = cli.main(["kernel", "check", *line.split()])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def test_a_sound_kernel_passes(run):
    assert run("my.cu add --grid 8 y=1000 x=1000 n=1000") == (0, "add: no fault in 8 blocks of 128 threads\n")
    assert run("my.cu scale<__half> --block 4 y=2x2 x=2x2:arange by=0.5")[0] == 0


def test_a_fault_is_named_and_fails(run):
    code, said = run("my.cu add --grid 8 y=1000 x=999 n=1000")
    assert code == 1
    assert "out-of-bounds read of x[999]" in said
    assert "my.cu:4" in said


def test_output_that_stays_empty_is_named(run):
    code, said = run("my.cu add --grid 8 y=1001 x=1000 n=1000")
    assert code == 1
    assert "y[1000]" in said
    assert run("my.cu add --grid 8 y=1001:zeros x=1000 n=1000")[0] == 0


def test_a_block_that_is_no_size_is_named(run):
    code, said = run("my.cu add --block 64,x y=4 x=4 n=4")
    assert code == 2
    assert "argument --block: '64,x' is not one to three whole numbers, such as 8,4" in said


def test_an_array_from_a_file(run, tmp_path):
    np.save(tmp_path / "x.npy", np.ones(4, np.float32))
    assert run("my.cu add y=4 x=@x.npy n=4")[0] == 0
    np.save(tmp_path / "x.npy", np.ones(4))
    code, said = run("my.cu add y=4 x=@x.npy n=4")
    assert code == 2
    assert said.startswith("llmlab: error: add: argument x is an array of float64; the kernel reads float32")


def test_profile_and_picture(run, tmp_path):
    code, said = run("my.cu add --grid 8 y=1000 x=1000 n=1000 --picture add.png")
    assert code == 0
    assert "my.cu:4" in said
    assert "add.png: read of x in my.cu:4" in said
    assert (tmp_path / "add.png").stat().st_size > 1000


def test_without_a_kernel_the_file_is_listed(run):
    code, said = run("my.cu")
    assert code == 0
    assert said.startswith(
        "add(float* y, const float* x, int n)\nscale(T* y, const T* x, float by)   (a template)\n"
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("your.cu", "there is no file your.cu"),
        ("my.cu y=1", "name the kernel before its arguments"),
        ("my.cu sub y=1", "my.cu has no kernel sub; it has add, scale"),
        ("my.cu scale y=1 x=1 by=1", "scale is a template; name an instantiation, such as 'scale<float>'"),
        ("my.cu add y=1", "add lacks x, n; its parameters are float* y, const float* x, int n"),
        ("my.cu add y=1 x=1 n=1 z=1", "add has no parameter z"),
        ("my.cu add y=1 x=1 n=ten", "argument n=ten: could not convert"),
        ("my.cu add y=1:twos x=1 n=1", "'twos' is none of random, out, zeros, ones, arange"),
        ("my.cu add y=1 x=1 n=1.5", "argument n is 1.5; the kernel takes a whole number"),
        ("my.cu add --grid 0 y=1 x=1 n=1", "grid is"),
        ("binary add y=1 x=1 n=1", "binary is no text: give the CUDA source, such as add.cu"),
        ("my.cu add y=9999999999999999 x=1 n=1", "y=9999999999999999: more than this machine's memory"),
        ("my.cu add y=1 x=9999999999999999 n=1", "x=9999999999999999: more than this machine's memory"),
        ("my.cu add y=1 x=1 n=1 --seed -1", "--seed -1: must be >= 0"),
    ],
)
def test_bad_input_is_one_line(run, line, complaint):
    code, said = run(line)
    assert code == 2
    assert complaint in said
    assert said.count("\n") == 1
