"""Which names of variables, options and fields stand for a secret. Knows nothing of values."""

from __future__ import annotations

import re

# The words of a name, whatever way they are joined: HF_TOKEN, --api-key, accessToken, APIKey.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Fused with whatever is before them: PGPASSWORD, dbpassword. The rest is fused with known words only: no "bypass".
_SECRETS = re.compile(".*(?:password|passwd|passphrase)|(?:client|app|shared|api|jwt|webhook)?secret")
# Of a language model or of a parser: `--pad-token '<pad>'`, "invalid token: x".
_OTHER_TOKENS = re.compile(
    "pad|bos|eos|unk|mask|sep|cls|image|audio|video|special|start|end|first|last|next|begin|bot|stop|max|min|num|n|per|new"
    "|invalid|unexpected|unknown|prompt|decoder|suppress|forced|extra|additional|no|use|ask|trigger|class|time"
)
# Whose key it is. A key that sorts, joins or is public is none, and `--ssh-key` names a file.
_KEYS = (
    "api|access|secret|private|auth|account|encryption|signing|master|license|service|admin|storage|hmac|aes"
    "|wandb|kaggle|openai|anthropic|cohere|mistral|groq|gemini|azure|aws|gcp|google|hf|huggingface|github|gitlab|comet"
    "|neptune|mlflow|clearml|datadog|dd|stripe|twilio|sendgrid|ngc|nvidia|replicate|pinecone|langchain|langsmith"
)
_PASSES = (
    "db|database|mysql|mariadb|pg|postgres|redis|smtp|imap|ftp|user|admin|root|sql|mongo|amqp|rabbitmq|proxy|mail|login"
    "|ssh|sudo|ldap|http|vnc|keystore|store|truststore"
)
_TOKENS = "api|access|auth|refresh|session|bearer|id|csrf|hf|gh|github|gitlab|slack|discord|telegram|vault"
_FUSED = re.compile(f"(?:{_KEYS})key|(?:{_PASSES})(?:pass|pwd|pw)|(?:{_TOKENS})token")
_KEY_OWNERS, _PASS_OWNERS = re.compile(_KEYS), re.compile(_PASSES)
_ASKS = re.compile("(?:no|ask|use|prompt|read|with)(?:pass.*)?")
# Alone they are secrets as options only: PWD is a directory, and "pass: 3" counts.
_OPTIONS = re.compile("-{0,2}(?:pass|pwd|pw|passin|passout)")
# Which name a file as often: `--credentials gcp.json`.
_CREDENTIALS = re.compile("credentials?|creds?")
_FILE = re.compile(r"(?:[/~]|\.{1,2}/).*|.*\.(?:json|ya?ml|txt|pem|key|ini|cfg|conf|toml|env|csv|p12)", re.S)


def is_secret_name(name: str, value: str = "") -> bool:
    """`value`: where it is known, so that the name of a file is left."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    before, last = ("", *words)[-2:]
    if last == "token":
        return not _OTHER_TOKENS.fullmatch(before)
    if last == "key":
        return bool(_KEY_OWNERS.fullmatch(before))
    if last in ("pass", "pwd", "pw"):
        return bool(_PASS_OWNERS.fullmatch(before))
    if _CREDENTIALS.fullmatch(last):
        return not _FILE.fullmatch(value)
    return bool(_SECRETS.fullmatch(last) or _FUSED.fullmatch(last))


def takes_secret(option: str, value: str = "") -> bool:
    """Whether what follows this option is one: `--ask-password` only asks, `--pass 2` counts, `--pwd /x` is a place."""
    if _OPTIONS.fullmatch(option):
        return not re.fullmatch(r"\d{1,2}", value) and not _FILE.fullmatch(value)
    return is_secret_name(option, value) and not _ASKS.fullmatch(_WORDS.findall(option)[0].lower())
