"""Secrets of every known shape and name do not survive; what only looks like one stays as it is, letter by letter."""

from __future__ import annotations

import json
import os
import random
import resource
import string
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.capture.run.gathered.kept_variables import KEPT
from harness.evidence.run import Process, Statement
from harness.evidence.text.redaction import MASK, Redactor
from harness.evidence.text.secret_names import is_secret_name
from harness.evidence.text.undecoded import decode_document, encode_document, mark_bytes, restore_bytes, show_bytes

LETTERS = string.ascii_letters + string.digits


def make_secret(length: int, letters: str = LETTERS, seed: int = 1) -> str:
    """Letters and digits, as tokens are made; the same in every run."""
    return "A1b" + "".join(random.Random(seed).choices(letters, k=length - 3))


OPAQUE = make_secret(20)
SHAPES = {
    "GitHub": f"ghp_{make_secret(36)}",
    "GitHub, of a server": f"ghs_{make_secret(36)}",
    "GitHub, fine-grained": f"github_pat_{make_secret(22)}_{make_secret(59)}",
    "Hugging Face": f"hf_{make_secret(34)}",
    "Hugging Face, letters only": f"hf_{'aBcDeFgHiJ' * 3}abcd",
    "OpenAI": f"sk-{make_secret(48)}",
    "OpenAI, of a project": f"sk-proj-{make_secret(30)}-x_{make_secret(12)}",
    "Anthropic": f"sk-ant-api03-{make_secret(40)}-AA",
    "AWS": "AKIAIOSFODNN7EXAMPLE",
    "AWS, for a time": "ASIAIOSFODNN7EXAMPLE",
    "Slack": f"xoxb-123456789012-{make_secret(24)}",
    "GitLab": f"glpat-{make_secret(20)}",
    "npm": f"npm_{make_secret(36)}",
    "PyPI": f"pypi-AgEIcHlwaS5vcmc{make_secret(60)}",
    "Google": f"AIza{make_secret(35)}",
    "JWT": f"eyJhbGciOiJIUzI1NiJ9.eyJ{make_secret(30)}.{make_secret(43)}",
    "Stripe": f"sk_live_{make_secret(24)}",
    "NVIDIA": f"nvapi-{make_secret(60)}",
}
PLACES = {
    "alone": "{}",
    "in a sentence": "Cannot log in with {}.",
    "in quotes": "KeyError: '{}'",
    "in a URL": "GET https://example.org/v1/{}/models?x=1 HTTP/1.1",
    "in a path": "/home/user/{}/train.py",
    "in JSON": '{{"id": 3, "value": "{}"}}',
}
NAMED = [
    "train.py --password {} --epochs 3",
    "train.py --password={}",
    "train.py --api-key '{}' --keys 3",
    'train.py --hf_token "{}"',
    "Command '['train.py', '--client-secret', '{}']' returned non-zero exit status 1.",
    "https://bob:{}@example.org/repo.git",
    "postgresql+psycopg2://bob:{}@db:5432/x",
    "Authorization: Bearer {}",
    "Authorization: Basic {}",
    "{{'Authorization': 'token {}', 'Accept': '*/*'}}",
    "Cookie: session={}; theme=dark",
    "Set-Cookie: id={}",
    "X-Api-Key: {}",
    "DB_PASSWORD={} python train.py",
    "WANDB_API_KEY={}",
    'export HF_TOKEN="{}"',
    '{{"api_key": "{}", "n": 1}}',
    '{{\\"password\\": \\"{}\\"}}',
    "Config(user='x', password='{}', n=1)",
    "password: {}",
    "aws_secret_access_key = {}",
    "https://example.org/?access_token={}&x=1",
    "https://s3.example.org/x?X-Amz-Signature={}",
    "OperationalError: authentication failed: dbname=x user=y password={} host=z",
    "machine api.wandb.ai login user password {}",
    "token={}",
    "sh -c 'PGPASSWORD={} psql'",
    "SSHPASS={}",
    "dbpassword={}",
    "rootpw={}",
    "train.py --pass {} --epochs 3",
    "train.py --pwd {}",
    "train.py --credentials {}",
    "train.py --wandb-key {}",
    "KAGGLE_KEY={}",
    "openssl req -passin pass:{}",
    "curl -s -u bob:{} https://example.org",
    "curl --user=bob:{}",
    "curl -ubob:{}",
    "/usr/bin/mysql -h db -p{} shop",
    "x | mysqldump -p'{}' shop",
    "docker login -u bob -p {} example.org",
    "sshpass -p {} ssh -p 22 host",
    "sshpass -p{} ssh host",
    "redis-cli -a {}",
    "Command '['sshpass', '-p', '{}', 'ssh']' returned non-zero exit status 1.",
    "connecting as bob with password '{}'",
    'password "{}" was refused',
    "curl -H Authorization:{}",
    "curl -H 'X-Api-Token: {}'",
]
# Each looks a little like a secret, and is none.
OTHERS = """
commit 3f786850e387550fdab836ed7e6dc881de23001b
build id 5f2a9c0b1d3e4f5a6b7c8d9e0f1a2b3c4d5e6f70
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU
_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferE
_ZNK3hf_17TransformerLayer7forwardEv
hf_transformerencoderlayer
QWxhZGRpbjpvcGVuIHNlc2FtZQ==
at::native::(anonymous namespace)::sk_kernel<float, 4>
python train.py --tokenizer gpt2 --keys 3 --max-tokens 512 --num-tokens=8
python train.py --pad-token <pad> --eos_token </s> --token-type bpe
python train.py --password-file /run/x --ask-password train.csv
KeyError: 'password'
invalid token: foo
Unexpected token: }
error: argument --token: expected one argument
--token is required
password is wrong
password: must not be empty
Authorization failed
Basic authentication required
bearer of bad news
disk-1234567890abcdef1234
sk-learn-contrib-imbalanced
/home/user/.cache/huggingface/token
token=' the'
tokens: 512, keys: 3
PWD=/home/user
forward_pass=0.3
PASS: test_x, pass: 3
key: value
primary_key=5
monkey=banana
http://localhost:8080/x@y
ssh://user@host:22/
user@host:4711
key_padding_mask=None, token_type_ids=[0, 1]
std::basic_string<char, std::char_traits<char>>
npm_config_registry npm_lifecycle_event
if token == "x" and secret is None:
train.py --passes 3 --pass 2 --key 5 --keys 3 --sort-key name --pw 1
apptainer exec --pwd /work image.sif
OLDPWD=/home/user bypass=true compass=3 lowpass=0.5
mysql -p shop
mysql -P 3306 -u bob shop
docker run -p 8080:80 -u 1000:1000 image
docker login -u bob example.org
ssh -p 2222 host
sshpass -e ssh -p 2222 host
torchrun -p 4 curly -u bob:builder
curl -u bob https://example.org
curl -H Accept:text/html
Access denied for user 'bob'@'h' (using password: YES)
train.py --credentials gcp.json
credentials: expired
eyJust-a-long-name-with-hyphens.py
pw: 5
fault_address 0x00007f3a5c0de000
""".strip().splitlines()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_known_shape_goes_wherever_it_stands(shape: str) -> None:
    for place in PLACES.values():
        assert Redactor().text(place.format(SHAPES[shape])) == place.format(MASK)


@pytest.mark.parametrize("text", NAMED)
def test_what_stands_behind_its_name_goes(text: str) -> None:
    told = Redactor().text(text.format(OPAQUE))
    assert OPAQUE not in told and MASK in told, told
    assert told.startswith(text.format("")[:6])


@pytest.mark.parametrize("text", OTHERS)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_twice_is_once_and_in_a_file_no_byte_moves() -> None:
    shapes = [place.format(secret) for place in PLACES.values() for secret in SHAPES.values()]
    for text in (*shapes, *(text.format(OPAQUE) for text in NAMED)):
        once = Redactor().text(text)
        assert Redactor().text(once) == once
        raw = os.fsencode(f"\udcff before\n{text}\nafter")
        kept = Redactor().raw(raw)
        assert len(kept) == len(raw) and kept.startswith(b"\xff before\n") and kept.endswith(b"\nafter")
        assert OPAQUE.encode() not in kept and not any(secret.encode() in kept for secret in SHAPES.values())


def test_a_private_key_goes_with_all_its_lines_and_no_line_is_lost() -> None:
    body = "\n".join(make_secret(64, LETTERS + "+/", seed) for seed in range(5))
    for kind in ("", "RSA ", "OPENSSH ", "ENCRYPTED "):
        block = f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"
        for text in (block, block.partition("-----END")[0]):
            told = Redactor().text(f"before\n{text}\nafter")
            assert not any(line in told for line in body.splitlines()), told
            assert told.startswith("before\n") and told.endswith("\nafter")
            assert told.count("\n") == text.count("\n") + 2
    public = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----"
    assert Redactor().text(public) == public


def test_a_command_line_is_read_word_by_word() -> None:
    argv = ["train.py", "--token", "a b", "--tokenizer", "gpt2", "--keys", "3", "--db-password=x=1", "HF_TOKEN=y", "-u"]
    told = Redactor().argv(argv)
    assert told == ("train.py", "--token", MASK, "--tokenizer", "gpt2", "--keys", "3", f"--db-password={MASK}",
                    f"HF_TOKEN={MASK}", "-u")  # fmt: skip
    assert Redactor().argv(["wandb", "login", "0" * 40]) == ("wandb", "login", MASK)
    assert Redactor().argv(["x", "--password", "--verbose", "--ask-password", "train.csv"])[2:] == (
        "--verbose",
        "--ask-password",
        "train.csv",
    )


@pytest.mark.parametrize(
    ("argv", "secret"),
    [
        (("curl", "-u", "bob:x", "https://example.org"), ("-u", f"bob:{MASK}")),
        (("mysql", "-px", "-h", "db"), (f"-p{MASK}", "-h")),
        (("docker", "login", "-p", "x", "host"), ("-p", MASK)),
        (("sudo", "sshpass", "-p", "x", "ssh", "-p", "22"), ("-p", MASK, "ssh", "-p", "22")),
        (("curl", "-H", "Authorization:abc"), ("-H", f"Authorization:{MASK}")),
        (("curl", "-H", "Authorization: abc def"), ("-H", f"Authorization: {MASK}")),
        (("train.py", "--pass", "zz", "3"), ("--pass", MASK, "3")),
        (("train.py", "--credentials=zz"), (f"--credentials={MASK}",)),
        (("sh", "-c", "PGPASSWORD=x psql -p 5432"), ("-c", f"PGPASSWORD={MASK} psql -p 5432")),
    ],
)
def test_a_password_goes_where_it_is_one_by_the_program(argv: tuple[str, ...], secret: tuple[str, ...]) -> None:
    told = Redactor().argv(argv)
    assert len(told) == len(argv)
    assert " ".join(secret) in " ".join(told), told


@pytest.mark.parametrize(
    "line",
    [
        "mysql -p shop",
        "docker run -p 80:80",
        "ssh -p 22",
        "train.py --pass 2 --pwd /x --passes 3 --key 5",
        "train.py --credentials /etc/x.json --password-file x --nopassword y",
        "curl -H Accept:text/html -u bob",
    ],
)
def test_another_word_of_a_command_line_stays(line: str) -> None:
    assert Redactor().argv(line.split()) == tuple(line.split())


# Each makes one pattern begin again and again, look far, and find nothing.
HOSTILE = (
    "-eyJ", "eyJaaaaaaaaaa.eyJ_", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAA",
    "-----BEGIN A", "a://", "aaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaa://x:", "a://b:c",
    "https://xxxxxxxxxxxxxxxxxxxxxx", "authorization ", "authorization:", 'cookie:"', "cookie: 'x", "bearer",
    "bearer aaaaaaaaaaaaaaaaaaaaaaaa-", "bearer  ", "key=", "key='", "key=\"'", "key=,", "api_key=,,", "token=1",
    "token=1!", "-key", "--key ", "--a-key '", "--pass=", "x-key", "?sig", "&sig=&", "wandb ",
    "wandb-0123456789abcdef0123456789abcdef012345 ", "machine ", "machine a login b password", " machine a login ",
    "-machine", "SG.aaaaaaaaaaaaaaaa", "sk-a", "hf_a1", "github_pat_", "xoxa-", "curl -u ", "curl -u a:", "mysql -p",
    "mysql -p'", " -u'", 'sshpass -p "', "-H cookie:", "-H 'a-a-a-", '--header "cookie: ', "password '", 'passwd "',
    "\\", "A", " ", "\n", "1",
)  # fmt: skip
CPU_S = 180  # many times what they cost; one pattern that costs the square of a length takes longer
READ_HOSTILE = """
import sys
from harness.evidence.text.redaction import _RULES, Redactor
hints = " ".join(hint for rule in _RULES for hint in rule.hints)
for piece in sys.argv[1:]:
    print(repr(piece), flush=True)
    Redactor().text(f"{hints}\\n{piece * ((1 << 20) // len(piece))}")
Redactor().text("token=" + "1" * (1 << 20) + "!")
"""


def test_no_text_costs_more_than_its_length() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))

    command = [sys.executable, "-c", READ_HOSTILE, *HOSTILE]
    done = subprocess.run(command, capture_output=True, preexec_fn=limit, check=False)
    assert done.returncode == 0, done.stdout.decode().splitlines()[-1:]


def test_what_was_given_away_once_is_known_everywhere() -> None:
    redactor = Redactor(
        environment={"NCCL_TOKEN": "quite-9-ordinary", "OMP_NUM_THREADS": "44444444", "X_PASSWORD": "of"}
    )
    process = Process(1, 0, "python", ("train.py", "--password", "open-7-sesame"), None, 0.0)
    facts = ({"x": "refused: open-7-sesame!"}, process, "quite-9-ordinary", "44444444 of 9")
    assert redactor.fact(facts)[0] == {"x": f"refused: {MASK}!"}
    assert redactor.fact(facts)[2:] == (MASK, "44444444 of 9")


def test_facts_without_a_secret_are_the_very_same_objects() -> None:
    process = Process(1, 0, "python", ("python", "train.py"), "/usr/bin/python3", 0.0)
    assert Redactor().fact(process) is process
    setting = Statement("train.py", 3, sets="HF_TOKEN", value="x")
    assert Redactor().fact(setting) == msgspec.structs.replace(setting, value=MASK)
    assert Redactor().fact({"tokens": 3, "token": 5}) == {"tokens": 3, "token": 5}


def test_no_redact_keeps_everything() -> None:
    redactor = Redactor(is_on=False, environment={"HF_TOKEN": OPAQUE})
    for text in (*SHAPES.values(), *(text.format(OPAQUE) for text in NAMED)):
        assert redactor.text(text) == text and redactor.raw(text.encode()) == text.encode()
    assert redactor.argv(["--token", OPAQUE]) == ("--token", OPAQUE)


@pytest.mark.parametrize(
    "name", ["TORCH_PASSWORD", "CUDA_API_TOKEN", "NCCL_TOKEN", "OMP_SECRET", "PYTHONSECRET", "LD_KEY"]
)
def test_the_environment_is_kept_by_whole_names(name: str) -> None:
    assert name not in KEPT
    assert {"OMP_NUM_THREADS", "KMP_DUPLICATE_LIB_OK", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "PYTHONPATH"} <= KEPT


def test_no_variable_that_is_kept_is_a_secret_by_its_name() -> None:
    assert not [name for name in KEPT if is_secret_name(name)]


@given(st.binary(max_size=40))
def test_bytes_come_back_as_they_were(data: bytes) -> None:
    word = os.fsdecode(data)
    marked = mark_bytes(word)
    document = encode_document([marked])
    assert os.fsencode(json.loads(document)[0]) == data
    assert decode_document(document, list) == [marked]
    assert os.fsencode(restore_bytes(marked)) == data


def test_bytes_are_shown_and_a_backslash_stays_one() -> None:
    assert show_bytes(mark_bytes("a\udcff")) == "a\\xff"
    for text in ("\\udcff", "\\\\udcff", "\\\udcff"):
        marked = mark_bytes(text)
        assert decode_document(encode_document([marked]), list) == [marked]
        assert json.loads(encode_document([marked])) == [text]
