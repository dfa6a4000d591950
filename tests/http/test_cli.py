"""The command line of the real program: usage errors, help, generate, logits, chat over a pipe and
a terminal.

Text comes from the chain model, so every answer is known.
"""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import numpy as np
import pytest
import server as servers
from safetensors.numpy import load_file
from server import run_tenon

VERBS = [
    "serve",
    "chat",
    "generate",
    "info",
    "convert",
    "bench",
    "perplexity",
    "verify",
    "logits",
    "ls",
]


# --- usage


@pytest.mark.parametrize(
    "args, says",
    [
        (["generate", "--modle", "x"], "--model"),
        (["generate", "--temprature=1"], "--temperature"),
        (["serve", "--prot", "1"], "--port"),
        (["logits", "--step", "1"], "--steps"),
        (["chat", "--sed=4"], "--seed"),
        (["genrate"], "generate"),
        (["servee"], "serve"),
    ],
)
def test_a_slip_of_the_fingers_gets_a_suggestion(args, says):
    code, out, err = run_tenon(*args)
    assert (code, out) == (2, ""), (code, out, err)
    assert f"did you mean {says}" in err.replace("'", ""), err
    assert len(err.strip().splitlines()) == 1, err


@pytest.mark.parametrize(
    "args, names",
    [
        (["serve", "--port", "x"], "--port"),
        (["serve", "--port", "70000"], "--port"),
        (["serve", "--port"], "--port"),
        (["generate", "--temperature", "9", "hi"], "--temperature"),
        (["generate", "--top-p", "0", "hi"], "--top-p"),
        (["generate", "--seed", "-1", "hi"], "--seed"),
        (["generate", "--logit-bias", "x", "hi"], "--logit-bias"),
        (["generate", "a", "b"], "b"),
        (["logits"], "--ids"),
        (["logits", "--ids", "1,x", "--out", "f"], "--ids"),
        (["logits", "--ids", "1"], "--out"),
        (["info", "--kernels", "none"], "--kernels"),
        (["serve", "--no-such-thing-at-all"], "--no-such-thing-at-all"),
        # Features that do not exist yet are unknown, not ignored.
        (["serve", "--tls-cert", "x"], "--tls-cert"),
        (["generate", "--schema", "x", "hi"], "--schema"),
    ],
)
def test_usage_errors_name_the_flag(args, names):
    code, out, err = run_tenon(*args)
    assert (code, out) == (2, ""), (code, out, err)
    assert names in err and len(err.strip().splitlines()) == 1, err


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb(verb):
    code, out, err = run_tenon(verb, "--help")
    assert code == 0 and err == "", (code, err)
    assert f"tenon {verb}" in out and ("--model" in out or verb == "ls"), out


def test_help_of_all():
    for flag in ("--help", "-h"):
        code, out, _ = run_tenon(flag)
        assert code == 0 and all(verb in out for verb in VERBS), out
    code, out, _ = run_tenon("--version")
    assert code == 0 and re.match(r"tenon \d+\.\d+", out), out


# --- generate


def generate(model, *args, stdin=b""):
    code, out, err = run_tenon(
        "generate", "--model", model.folder, "--temperature", "0", *args, stdin=stdin
    )
    assert code == 0, err
    return out


def test_generate(chain_model):
    assert generate(chain_model, "hello") == "Hello there!\n"
    assert generate(chain_model, stdin=b"hello from a pipe") == "Hello there!\n"
    assert generate(chain_model, "[[chain emoji]]") == chain_model.texts["emoji"].decode() + "\n"
    assert generate(chain_model, "[[chain alphabet]]", "--stop", "FG") == "ABCDE\n"
    assert (
        generate(chain_model, "[[chain loop]]", "--max-tokens", "5") == " round and around, round\n"
    )


def test_generate_raw(chain_model):
    assert (
        generate(chain_model, "--raw", "<|go:alphabet|>")
        == chain_model.texts["alphabet"].decode() + "\n"
    )
    assert generate(chain_model, "--raw", "A") == chain_model.texts["alphabet"][1:].decode() + "\n"


def test_generate_json_and_stats(chain_model):
    reply = json.loads(generate(chain_model, "--json", "--seed", "0", "[[chain alphabet]]"))
    assert reply["text"] == chain_model.texts["alphabet"].decode()
    assert (reply["finish_reason"], reply["seed"]) == ("stop", 0)
    assert reply["completion_tokens"] == len(chain_model.ids["alphabet"]) + 1
    code, out, err = run_tenon(
        "generate", "--model", chain_model.folder, "--stats", "--temperature", "0", "hi"
    )
    assert (code, out) == (0, "Hello there!\n") and "tokens at" in err, err


def test_generate_is_quiet_when_piped(chain_model):
    code, _, err = run_tenon("generate", "--model", chain_model.folder, "--temperature", "0", "hi")
    assert (code, err) == (0, ""), f"no progress bar and no chatter: {err!r}"


def test_generate_seeds(chain_model):
    def roll(*args):
        return run_tenon(
            "generate",
            "--model",
            chain_model.folder,
            "--temperature",
            "1",
            "--max-tokens",
            "20",
            *args,
            "[[chain dice]]",
        )[1]

    assert roll("--seed", "5") == roll("--seed", "5")
    assert roll("--seed", "5") != roll("--seed", "6")
    assert roll() != roll()


def test_the_seed_law_holds_between_cli_and_server(real):
    reply = real.chat("[[chain dice]]", temperature=1, seed=12, max_tokens=20).json()
    code, out, err = run_tenon(
        "generate",
        "--model",
        real.chains.folder,
        "--temperature",
        "1",
        "--max-tokens",
        "20",
        "--seed",
        "12",
        "[[chain dice]]",
    )
    assert (code, out) == (0, reply["choices"][0]["message"]["content"] + "\n"), err


def test_environment_and_config_file(chain_model, tmp_path):
    config = tmp_path / "tenon.toml"
    config.write_text(
        f'model = "{chain_model.folder}"\ntemperature = 0\n[generate]\nmax-tokens = 1\n'
    )
    code, out, err = run_tenon("generate", "--config", config, "hi")
    assert (code, out) == (0, "Hello\n"), err
    code, out, err = run_tenon("generate", "--config", config, "--max-tokens", "2", "hi")
    assert (code, out) == (0, "Hello there\n"), "a flag comes before the file"
    config.write_text("modle = 'x'\n")
    code, _, err = run_tenon("generate", "--config", config, "hi")
    assert code == 2 and "modle" in err, err
    done = subprocess.run(
        [str(servers.TENON), "generate", "hi"],
        capture_output=True,
        timeout=servers.REPLY_S,
        env=os.environ | {"TENON_MODEL": str(chain_model.folder), "TENON_TEMPERATURE": "0"},
    )
    assert (done.returncode, done.stdout) == (0, b"Hello there!\n"), done.stderr


def test_a_prompt_past_the_window(chain_model):
    code, _, err = run_tenon(
        "generate", "--model", chain_model.folder, "--context", "64", "--raw", "x" * 100
    )
    assert code == 1 and "100" in err and "64" in err, (code, err)


def test_a_closed_pipe_ends_it(chain_model):
    process = subprocess.Popen(
        [
            str(servers.TENON),
            "generate",
            "--model",
            str(chain_model.folder),
            "--temperature",
            "0",
            "[[chain loop]]",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout.read(6) == b" round"
    process.stdout.close()
    process.wait(30 * servers.PATIENCE)


# --- info, logits


def test_info(chain_model):
    code, out, err = run_tenon("info", "--model", chain_model.folder, "--json")
    assert code == 0, err
    assert "llama" in out and str(chain_model.vocab_size) in out, out
    json.loads(out)
    code, out, _ = run_tenon("info", "--model", chain_model.folder)
    assert code == 0 and "llama" in out


@pytest.mark.parametrize("prompt, steps", [([1], 0), ([1, 2, 3], 0), ([7] * 33, 5)])
def test_logits_shapes(chain_model, tmp_path, prompt, steps):
    out = tmp_path / "out.safetensors"
    code, said, err = run_tenon(
        "logits",
        "--model",
        chain_model.folder,
        "--ids",
        ",".join(map(str, prompt)),
        "--steps",
        steps,
        "--out",
        out,
    )
    assert code == 0, err
    got = load_file(out)
    rows = len(prompt) + steps
    assert (
        got["logits"].shape == (rows, chain_model.vocab_size) and got["logits"].dtype == np.float32
    )
    assert got["ids"].shape == (rows + 1,) and got["ids"].dtype == np.int32
    assert got["ids"][: len(prompt)].tolist() == prompt
    assert (
        got["ids"][len(prompt) :].tolist()
        == got["logits"][len(prompt) - 1 :].argmax(axis=1).tolist()
    )


def test_logits_of_a_chain_with_chunks_and_company(chain_model, tmp_path):
    """Row i follows ids[0..i]; how the prompt is cut and who shares the batch changes no bit."""
    ids = chain_model.ids["alphabet"]
    rows = []
    for i, flags in enumerate(
        [[], ["--chunk", "1"], ["--chunk", "2"], ["--batch-with", "5,6,7", "--batch-with", "9"]]
    ):
        out = tmp_path / f"{i}.safetensors"
        code, _, err = run_tenon(
            "logits",
            "--model",
            chain_model.folder,
            "--ids",
            ",".join(map(str, ids[:4])),
            "--steps",
            len(ids) - 5,
            "--out",
            out,
            "--dtype",
            "float32",
            *flags,
        )
        assert code == 0, err
        got = load_file(out)
        assert got["ids"].tolist() == ids
        rows.append(got["logits"])
    for flags_logits in rows[1:]:
        assert np.array_equal(rows[0], flags_logits), np.abs(rows[0] - flags_logits).max()


def test_logits_need_no_tokenizer(chain_model, tmp_path):
    import shutil

    bare = shutil.copytree(chain_model.folder, tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    (bare / "tokenizer_config.json").unlink()
    code, _, err = run_tenon(
        "logits", "--model", bare, "--ids", "1,2", "--out", tmp_path / "o.safetensors"
    )
    assert code == 0, err
    code, _, err = run_tenon("generate", "--model", bare, "hi")
    assert code == 1 and "tokenizer" in err, (code, err)


def test_logits_errors(chain_model, tmp_path):
    base = ["logits", "--model", chain_model.folder]
    code, _, err = run_tenon(*base, "--ids", "1,99999", "--out", tmp_path / "o.safetensors")
    assert code == 1 and "99999" in err, (code, err)
    code, _, err = run_tenon(
        *base, "--ids", "1", "--out", tmp_path / "no" / "folder" / "o.safetensors"
    )
    assert code == 1 and "folder" in err, (code, err)
    assert not list(tmp_path.iterdir()), "nothing half-written is left"


# --- chat


def test_chat_over_a_pipe(chain_model, tmp_path):
    saved = tmp_path / "talk.json"
    lines = ["hello", "[[chain alphabet]]", "/stats", f"/save {saved}", "/params temperature 2"]
    script = "\n".join([*lines, "/nosuch", "/exit", "never", ""])
    code, out, err = run_tenon(
        "chat", "--model", chain_model.folder, "--temperature", "0", stdin=script.encode()
    )
    assert code == 0, err
    lines = out.splitlines()
    assert lines[:2] == ["Hello there!", chain_model.texts["alphabet"].decode()], out
    assert "tokens at" in out and "unknown command" in err
    talk = json.loads(saved.read_text())
    assert [m["role"] for m in talk] == ["user", "assistant"] * 2
    assert talk[1]["content"] == "Hello there!"


def test_chat_ends_with_its_input(chain_model):
    code, out, err = run_tenon(
        "chat", "--model", chain_model.folder, "--temperature", "0", stdin=b"hello"
    )
    assert (code, out) == (0, "Hello there!\n"), err


PROMPT = b"> "


class Terminal:
    """A program on a pseudo terminal."""

    def __init__(self, *args, home):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [str(servers.TENON), *map(str, args)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(0, 0x540E),
            env=os.environ | {"HOME": str(home), "XDG_STATE_HOME": str(home), "TERM": "xterm"},
        )
        os.close(slave)
        self.seen = b""

    def expect(self, what, seconds=30):
        """Reads on until `what` appears after what was consumed before."""
        until = time.monotonic() + seconds * servers.PATIENCE
        while what not in self.seen:
            left = until - time.monotonic()
            assert left > 0, f"no {what!r} in {self.seen[-800:]!r}"
            if select.select([self.master], [], [], min(left, 0.2))[0]:
                try:
                    self.seen += os.read(self.master, 4096)
                except OSError:  # the program ended
                    assert what in self.seen, f"it ended without {what!r}: {self.seen[-800:]!r}"
        self.seen = self.seen[self.seen.index(what) + len(what) :]

    def type(self, raw):
        os.write(self.master, raw)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.master)


def test_chat_on_a_terminal(chain_model, tmp_path):
    """Ctrl-C stops a reply, not the program; Ctrl-D leaves. Keys come at the prompt, as a person's do:
    what is typed while a terminal changes modes may be lost.
    """
    terminal = Terminal("chat", "--model", chain_model.folder, "--temperature", "0", home=tmp_path)
    try:
        terminal.expect(b"/help lists the commands")
        terminal.expect(PROMPT)
        terminal.type(b"hello\r")
        terminal.expect(b"Hello there!")
        terminal.expect(PROMPT)
        terminal.type(b"[[chain loop]]\r")
        terminal.expect(b" round and around, round")
        terminal.type(b"\x03")
        terminal.expect(b"[stopped]")
        terminal.expect(PROMPT)
        terminal.type(b"/stats\r")
        terminal.expect(b"tokens at")
        terminal.expect(PROMPT)
        terminal.type(b"\x04")
        assert terminal.process.wait(20 * servers.PATIENCE) == 0
    finally:
        terminal.close()
