"""Exit codes and error lines."""

import os
import signal
import subprocess
import sys
import warnings

import pytest

from vcycle.console import process
from vcycle.errors import DataError


def ending(error):
    def command(args, standalone_mode):
        raise error

    return command


def test_an_exit_code_that_a_command_returns_is_kept(capsys):
    assert process.run(lambda args, standalone_mode: 1, []) == 1
    assert process.run(lambda args, standalone_mode: None, []) == 0
    assert capsys.readouterr().err == ""


def test_what_a_user_can_mend_is_exit_code_2(capsys):
    assert process.run(ending(DataError("videos: nothing there")), []) == 2
    assert capsys.readouterr().err == "error: videos: nothing there\n"


@pytest.mark.parametrize("arguments", [["--debug", "train"], ["train", "--debug"]])
def test_debug_shows_the_traceback_as_well_wherever_it_stands(capsys, arguments):
    given = []

    def command(args, standalone_mode):
        given.extend(args)
        raise DataError("videos: nothing there")

    assert process.run(command, arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("error: videos: nothing there\n")
    assert given == ["train"]


def test_a_fault_of_the_program_is_one_line_and_exit_code_1(capsys):
    assert process.run(ending(KeyError("stem")), []) == 1
    assert capsys.readouterr().err == "error: unexpected KeyError: 'stem' (--debug shows where)\n"


def test_a_long_error_is_cut_to_its_first_line(capsys):
    assert process.run(ending(RuntimeError("\n  first\nsecond\n")), []) == 1
    assert capsys.readouterr().err == "error: unexpected RuntimeError: first (--debug shows where)\n"


def test_a_line_is_not_broken_however_long(capsys):
    process.run(ending(DataError("long " * 100)), [])
    assert capsys.readouterr().err.count("\n") == 1


def test_markup_in_a_message_is_printed_as_it_is(capsys):
    process.run(ending(DataError("[red]videos[/red]/[1].mp4")), [])
    assert capsys.readouterr().err == "error: [red]videos[/red]/[1].mp4\n"


def test_a_name_with_an_end_of_line_or_a_code_for_the_terminal_stays_one_line_and_is_spelt_out(capsys):
    process.run(ending(DataError("a\nb\x1b[31m\u2028.mp4: nothing there")), [])
    assert capsys.readouterr().err == "error: a\\nb\\x1b[31m\\u2028.mp4: nothing there\n"
    process.run(ending(PermissionError(13, "Permission denied", "a\nb")), [])
    assert capsys.readouterr().err == "error: a\\nb: Permission denied\n"


@pytest.mark.parametrize(("arguments", "shown"), [(["check", ""], "an argument"), (["train", "x", "--out="], "--out=")])
def test_an_empty_argument_is_refused_before_it_means_the_current_folder(arguments, shown, capsys):
    assert process.run(lambda **_: pytest.fail("ran"), arguments) == 2
    said = f"error: {shown} is empty: is a shell variable unset?\n"
    assert capsys.readouterr().err == said


def test_a_folder_that_is_deleted_under_a_command_is_named(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))

    def command(args, standalone_mode):
        folder.rmdir()
        os.getcwd()

    said = f"error: the current folder {folder} has been deleted: change to another one\n"
    assert process.run(command, ["train"]) == 2
    assert capsys.readouterr().err == said
    assert process.run(lambda **_: pytest.fail("ran"), ["doctor"]) == 2
    assert capsys.readouterr().err == said


def test_a_fault_of_the_machine_is_the_users_to_mend(capsys):
    assert process.run(ending(PermissionError(13, "Permission denied", "/data")), []) == 2
    assert capsys.readouterr().err == "error: /data: Permission denied\n"


def test_an_interruption_is_130(capsys):
    assert process.run(ending(KeyboardInterrupt()), []) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_interruption_of_code_made_from_text_ends_with_130_all_the_same(tmp_path):
    (tmp_path / "interrupted.py").write_text(
        "import sys\n"
        "from vcycle.console import process\n"
        "sys.exit(process.run(lambda args, standalone_mode: exec('raise KeyboardInterrupt'), []))\n"
    )
    command = [sys.executable, "-m", "interrupted"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")


def test_an_interruption_says_how_to_go_on_with_work_that_is_not_lost(capsys):
    def command(args, standalone_mode):
        with process.resumable("resume with `x`"):
            raise KeyboardInterrupt

    assert process.run(command, []) == 130
    assert capsys.readouterr().err == "interrupted; resume with `x`\n"


def test_an_interruption_that_the_code_at_hand_makes_another_error_of_is_one_nevertheless(capsys):
    def command(args, standalone_mode):
        with process.resumable("resume with `x`"):
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise RecursionError from None  # as an import does that is left half done

    assert process.run(command, []) == 130
    assert capsys.readouterr().err == "interrupted; resume with `x`\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, 138)])
def test_a_schedulers_signal_is_named_and_has_the_code_that_a_shell_would_give(capsys, number, code):
    def command(args, standalone_mode):
        with process.resumable("resume with `x`"):
            os.kill(os.getpid(), number)

    assert process.run(command, []) == code
    assert capsys.readouterr().err == f"interrupted by {number.name}; resume with `x`\n"


def test_a_package_that_is_not_installed_is_named_with_its_command(capsys):
    assert process.run(ending(ModuleNotFoundError("No module named 'torch'", name="torch")), []) == 2
    assert capsys.readouterr().err == "error: this needs torch, which is not installed: pip install torch\n"
    assert process.run(ending(ModuleNotFoundError("No module named 'torch.x'", name="torch.x")), []) == 1


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_closed_stream_is_written_to_in_vain(monkeypatch, name):
    monkeypatch.setattr(sys, name, None)
    assert process.run(lambda args, standalone_mode: print("told", file=getattr(sys, name)), []) == 0
    assert process.run(ending(DataError("videos: nothing there")), []) == 2


@pytest.mark.parametrize(("code", "expected"), [(None, 0), (2, 2), (0, 0)])
def test_the_commands_own_exit_code_is_kept(code, expected):
    assert process.run(ending(SystemExit(code)), []) == expected


def test_warnings_of_libraries_are_lines_without_source_code(capsys):
    def command(args, standalone_mode):
        warnings.warn("two\nlines", UserWarning, stacklevel=1)

    assert process.run(command, []) == 0
    assert capsys.readouterr().err == "warning: two lines\n"
