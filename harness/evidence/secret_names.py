"""Which names of variables, options and fields stand for a secret. Knows nothing of values."""

from __future__ import annotations

import re

# The words of a name, whatever way they are joined: HF_TOKEN, --api-key, accessToken, APIKey.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRETS = re.compile("password|passwd|passphrase|secret|apikey|apitoken|accesstoken|authtoken|secretkey")
# Of a language model or of a parser: `--pad-token '<pad>'`, "invalid token: x".
_OTHER_TOKENS = re.compile(
    "pad|bos|eos|unk|mask|sep|cls|image|audio|video|special|start|end|first|last|next|begin|bot|stop|max|min|num|n|per|new"
    "|invalid|unexpected|unknown|prompt|decoder|suppress|forced|extra|additional|no|use|ask|trigger|class|time"
)
_KEYS = re.compile("api|access|secret|private|auth|account|encryption|signing|master|license|service|admin")
_PASSES = re.compile("db|database|mysql|pg|postgres|redis|smtp|ftp|user|admin|root|sql|mongo|amqp|proxy|mail|login")
_ASKS = re.compile("no|ask|use|prompt|read|with")


def is_secret_name(name: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    before, last = ("", *words)[-2:]
    if last == "token":
        return not _OTHER_TOKENS.fullmatch(before)
    if last == "key":
        return bool(_KEYS.fullmatch(before))
    if last in ("pass", "pwd", "pw"):
        return bool(_PASSES.fullmatch(before))
    return bool(_SECRETS.fullmatch(last))


def takes_secret(option: str) -> bool:
    """Whether the word after this option is one: `--ask-password` only asks."""
    return is_secret_name(option) and not _ASKS.fullmatch(_WORDS.findall(option)[0].lower())
