"""Passwords, tokens and keys are taken out of facts before anything is made of them, kept or shown.

They are known by their names (`--token X`, `DB_PASSWORD=X`, headers, URLs) and by the shapes that their makers gave
them; what a command line or the environment has given away is found again wherever it is repeated. Nothing is guessed
by how random it looks: hashes, build ids and mangled symbols stay as they are.
"""

from __future__ import annotations

import functools
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import msgspec

from harness.evidence.text.secret_names import is_secret_name, takes_secret
from harness.evidence.text.secret_options import HINTS, find_secret, split_before
from harness.evidence.text.transcript import UNSHOWN
from harness.evidence.text.undecoded import mark_bytes

_Fact = TypeVar("_Fact")
MASK = "[redacted]"
_SHORTEST_KNOWN, _SHORTEST_WORD = 6, 12  # what is shorter, or a shorter plain word, may stand anywhere
_MOST_REMEMBERED = 50_000
_LABELS = ("name", "option", "gap")  # groups that hold no secret
_MOST_WORDS_BEFORE = 40
_NO_NEWLINE = re.compile(r"[^\n]+")
# After a name and a blank these are the rest of a sentence: "--token is required".
_PROSE = re.compile(
    "is|are|was|were|and|or|not|to|for|must|expected|requires?|required|ha[sd]|have|in|with|from|option|argument|flag|value"
    "|may|can|cannot|will|would|should|if|when|of|the|an?|none|null|true|false|failed|invalid|missing|incorrect|wrong"
    "|empty|unset|string|str|yes|no",
    re.I,
)
_FIRST_WORDS = ("api ", "access ", "auth ", "secret ", "private ", "refresh ")
_LONGEST_NAME = 80
_VALUE = r"""(?:[bru]?\\?"(?P<{0}1>[^"\n]*)"|[bru]?\\?'(?P<{0}2>[^'\n]*)'|(?P<{0}3>[^\s"'&;)\]}}>]*[^\s"'&;)\]}}>,]))"""
_NAME_END = r"(?:token|secret|passw(?:or)?d|passphrase|pass|pwd|pw|key)"
_OPTION_END = r"(?:token|secret|passw(?:or)?d|passphrase|passin|passout|pass|pwd|pw|key|credentials?|creds?)"
_NAME_HINTS = ("token", "secret", "pass", "pwd", "pw", "key")
_HEADERS = r"(?:(?:proxy-)?authorization|cookie|(?:[a-z]{1,20}-){0,3}(?:token|key|secret|password))"


class _Rule(NamedTuple):
    """Tried where one of `hints` is in the text in lower case; none: always. What a named group holds goes."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    is_meant: Callable[[re.Match[str]], bool] = lambda found: True


def _value(found: re.Match[str]) -> str:
    return next((value for name, value in found.groupdict().items() if value is not None and name not in _LABELS), "")


def _is_named(found: re.Match[str]) -> bool:
    """`name=value`, `name: value`: the whole name is before the words that the pattern begins with."""
    name, value = _name_before(found.string, found.end("name")), _value(found)
    if not is_secret_name(name, value) or value.startswith(("$", "{", "<", "[", "(", "*")) or not value:
        return False
    if name.lower() == "token":  # of whatever kind
        return len(value) >= 16 and bool(re.search(r"\d", value)) and bool(re.fullmatch(r"[\w.~+/=-]+", value))
    return not _says_nothing(value)


def _name_before(text: str, end: int) -> str:
    start = end
    while start > max(0, end - _LONGEST_NAME) and (text[start - 1].isalnum() or text[start - 1] in "_.-"):
        start -= 1
    first = text[max(0, start - _LONGEST_NAME) : start].lower()
    return next((word for word in _FIRST_WORDS if first.endswith(word)), "") + text[start:end]


def _is_option(found: re.Match[str]) -> bool:
    return takes_secret(found["option"], _value(found)) and not _says_nothing(_value(found))


def _is_option_of_tool(found: re.Match[str]) -> bool:
    words = split_before(found.string, found.start("option"))
    return bool(find_secret(words, found["option"], not found["gap"], "user:password")) and not _says_nothing(
        _value(found)
    )


def _says_nothing(value: str) -> bool:
    return bool(_PROSE.fullmatch(value.strip(".,:"))) or value.startswith(MASK.rstrip("]"))


# Each costs no more than the length of the text, whoever wrote it: a pattern begins with what cannot stand in what it
# goes on with, or takes all that it has looked at even where that is not meant; else what it looks at is bounded.
_RULES = (
    _Rule(
        ("private key-----",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?P<a>(?:[^-]|-(?!----)){1,20000})"
            r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----"
        ),
    ),
    _Rule(  # cut off before its end
        ("private key-----",),
        re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?P<a>(?:(?:\\n|\s)+[A-Za-z0-9+/=]{16,})+)"),
    ),
    _Rule(("://",), re.compile(r"(?<=[a-z0-9+.-][a-z0-9+.-])://[^\s/@:'\"]*:(?P<a>[^\s/'\"]+)@", re.I)),
    _Rule(("://",), re.compile(r"https?://(?P<a>[^\s/@:'\"]{20,})@", re.I)),
    _Rule(
        ("authorization", "cookie"),
        re.compile(
            r"(?<![\w-])(?:(?:proxy-)?authorization|(?:set-)?cookie)(?:\\?[\"'])?\s*[:=]\s*"
            r"(?:[bru]?\\?\"(?P<a>[^\"\n]*)\"|[bru]?\\?'(?P<b>[^'\n]*)'|(?P<c>[^\s'\"][^\n'\"]*))",
            re.I,
        ),
        lambda found: "=" in _value(found) or " " in _value(found).strip() or any(map(str.isdigit, _value(found))),
    ),
    _Rule(("bearer", "basic"), re.compile(r"\b(?:bearer|basic)\s+(?P<a>(?=[\w.~+/=-]*\d)[\w.~+/=-]{16,})", re.I)),
    _Rule(
        _NAME_HINTS,
        re.compile(rf"(?P<name>{_NAME_END})(?:\\?[\"'])?\s{{0,3}}(?:=>|=|:)\s{{0,3}}{_VALUE.format('a')}", re.I),
        _is_named,
    ),
    _Rule(
        (*_NAME_HINTS, "cred"),
        re.compile(
            rf"(?<![\w-])--?(?P<option>(?:[a-z][\w-]*?)?{_OPTION_END})"
            rf"(?:(?:\s+|=)(?!-){_VALUE.format('a')}|[\"'],\s*[bru]?[\"'](?P<b>[^\"'\n]+)[\"'])",
            re.I,
        ),
        _is_option,
    ),
    _Rule(  # curl -u bob:X
        HINTS,
        re.compile(
            r"(?<=[\s'\"])(?P<option>-[uU]|--(?:proxy-)?user)(?P<gap>[ \t=]{1,3}|[\"'],\s{0,3}|)"
            r"[\"']?[^\s:\"'/]{1,100}:(?P<a>[^\s\"']+)"
        ),
        _is_option_of_tool,
    ),
    _Rule(  # mysql -pX, docker login -p X
        HINTS,
        re.compile(
            rf"(?<=[\s'\"])(?P<option>-pw(?=[\s'\"])|-[pPaw])(?P<gap>[ \t]{{1,3}}|[\"'],\s{{0,3}}|){_VALUE.format('a')}"
        ),
        _is_option_of_tool,
    ),
    _Rule(  # curl -H Authorization:X
        ("-h", "--header"),
        re.compile(
            rf"(?<=[\s'\"])(?:-H|--header)[ =]?(?:[\"'],\s{{0,3}})?"
            rf"(?:[\"']{_HEADERS}:\s{{0,3}}(?P<a>[^\s\"'][^\"'\n]*)|{_HEADERS}:(?P<b>[^\s\"']+))",
            re.I,
        ),
    ),
    _Rule(  # "with password 'X'"
        ("password", "passwd"),
        re.compile(r"(?<![\w-])passw(?:or)?d\s{1,3}(?:\"(?P<a>[^\"\n]+)\"|'(?P<b>[^'\n]+)')", re.I),
        lambda found: not _says_nothing(_value(found)),
    ),
    _Rule(
        ("sig", "credential"),
        re.compile(
            r"[?&](?:x-amz-signature|x-amz-credential|x-amz-security-token|sig|signature)=(?P<a>[^&\s\"']+)", re.I
        ),
    ),
    _Rule(("wandb",), re.compile(r"wandb\b[^\n]{0,60}?\b(?P<a>[0-9a-f]{40})\b", re.I)),
    _Rule(("machine",), re.compile(r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<a>\S+)")),
    _Rule(
        (),
        re.compile(
            r"(?<![A-Za-z0-9])(?P<a>gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}"
            r"|hf_(?:[A-Za-z0-9]{30,}|(?=[A-Za-z]*\d)[A-Za-z0-9]{16,})"
            r"|sk-(?:proj|ant|svcacct|admin|or|lf)-[\w-]{8,}|sk-(?=[A-Za-z]*\d)[A-Za-z0-9]{16,}|sk-[A-Za-z0-9]{32,}"
            r"|(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"
            r"|xox[a-z]-[\w-]{10,}|xapp-\d-[\w-]{10,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{30,}|pypi-AgE[\w-]{16,}"
            r"|AIza[\w-]{30,}|ya29\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|nvapi-[\w-]{20,}|gsk_[A-Za-z0-9]{20,}"
            r"|r8_[A-Za-z0-9]{30,}|wandb_v1_\w{16,}|dop_v1_[0-9a-f]{32,})"
        ),
    ),
    _Rule(
        ("eyj",),
        re.compile(r"(?<![A-Za-z0-9])(?P<a>eyJ[\w-]{10,}(?:\.[\w-]{4,}\.[\w-]*)?)"),
        lambda found: "." in found["a"],
    ),
)


class Redactor:
    """Knows what has been given away so far. `is_on` false: everything stays, as the user has asked."""

    def __init__(self, is_on: bool = True, environment: Mapping[str, str] | None = None) -> None:
        self._is_on = is_on
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._text = functools.lru_cache(_MOST_REMEMBERED)(self._redact_text)
        self._learn(value for name, value in (environment or {}).items() if is_secret_name(name))

    def _learn(self, values: Iterable[str]) -> None:
        """A path is no secret: `--token-file` has many names."""
        long = {value for value in values if len(value) >= (_SHORTEST_WORD if value.isalpha() else _SHORTEST_KNOWN)}
        new = {value for value in long if not value.startswith(("/", "./", "~"))} - self._known
        if new and self._is_on:
            self._known |= new
            longest_first = sorted(map(re.escape, self._known), key=len, reverse=True)
            self._pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(longest_first)})(?![A-Za-z0-9])")
            self._text.cache_clear()

    def text(self, text: str) -> str:
        return self._text(text) if text else text

    def _redact_text(self, text: str) -> str:
        text = mark_bytes(text)
        done, at = [], 0
        for start, end in self._find(text):
            done += [text[at:start], "\n".join(MASK if line else "" for line in text[start:end].split("\n"))]
            at = end
        return "".join([*done, text[at:]])

    def raw(self, data: bytes) -> bytes:
        """The same, in as many bytes: what stands behind stays where it was."""
        text = data.decode("utf-8", "surrogateescape")
        done, at = [], 0
        for start, end in _merge([*self._find(text), *self._find_shown(text)]):
            done += [text[at:start], _NO_NEWLINE.sub(_cover, text[start:end])]
            at = end
        return "".join([*done, text[at:]]).encode("utf-8", "surrogateescape")

    def _find_shown(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the secrets are that only a reader at a terminal sees: in colours, with what is not seen in between."""
        hidden = [found.span() for found in UNSHOWN.finditer(text)]
        if not hidden:
            return
        pieces = list(zip([0, *(end for _, end in hidden)], [*(start for start, _ in hidden), len(text)], strict=True))
        begins = list(accumulate((stop - start for start, stop in pieces), initial=0))
        shown = "".join(text[start:stop] for start, stop in pieces)
        for start, end in self._find(shown):
            first, last = (bisect_right(begins, at) - 1 for at in (start, end - 1))
            yield pieces[first][0] + start - begins[first], pieces[last][0] + end - begins[last]

    def argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Word by word: what follows `--token` goes whatever it looks like."""
        if not self._is_on:
            return tuple(map(mark_bytes, argv))
        given = [_find_given(argv, at) for at in range(len(argv))]
        self._learn(filter(None, given))
        return tuple(
            word.removesuffix(secret) + MASK if secret else self.text(word)
            for word, secret in zip(map(mark_bytes, argv), map(mark_bytes, given), strict=True)
        )

    def _find(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the secrets are, in order, each once."""
        if not self._is_on:
            return
        lowered, spans = text.lower(), []
        for rule in _RULES:
            if not rule.hints or any(hint in lowered for hint in rule.hints):
                for found in rule.pattern.finditer(text):
                    if rule.is_meant(found):
                        spans.append(_span(found))
        if self._pattern:
            spans += [found.span() for found in self._pattern.finditer(text)]
        yield from _merge(spans)

    def fact(self, fact: _Fact) -> _Fact:
        """Every text in it, however deep; once more when a command line has given something away on the way."""
        known = -1
        while known != len(self._known):
            known, fact = len(self._known), self._walk(fact)
        return fact

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, msgspec.Struct):
            return self._walk_struct(value)
        if isinstance(value, dict):
            return {self._walk(key): self._named(str(key), item) for key, item in value.items()}
        if isinstance(value, tuple | list):
            items = [self._walk(item) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return value

    def _named(self, name: str, value: Any) -> Any:
        return MASK if self._is_on and value and isinstance(value, str) and is_secret_name(name) else self._walk(value)

    def _walk_struct(self, struct: msgspec.Struct) -> msgspec.Struct:
        changed, named = {}, getattr(struct, "sets", None)  # a variable that a script sets, and its value
        for name in struct.__struct_fields__:
            old = getattr(struct, name)
            name_of_value = str(named) if name == "value" else ""
            new = self.argv(old) if name == "argv" and old else self._named(name_of_value, old)
            if new is not old and new != old:
                changed[name] = new
        return msgspec.structs.replace(struct, **changed) if changed else struct


def _find_given(argv: Sequence[str], at: int) -> str:
    """What this word of a command line gives away: the end of it, or nothing."""
    word, before = argv[at], argv[at - 1] if at else ""
    if before.startswith("-") and "=" not in before and not word.startswith("--") and takes_secret(before, word):
        return word
    if before == "login" and re.fullmatch(r"[0-9a-f]{40}", word):  # wandb
        return word
    if before in ("-H", "--header") and (header := re.match(rf"{_HEADERS}:\s{{0,3}}(\S.*)", word, re.I | re.S)):
        return header[1]
    name, _, value = word.partition("=")
    if re.fullmatch(r"[\w.-]+", name) and _is_named_word(name, value, before):
        return value
    words = argv[max(0, at - _MOST_WORDS_BEFORE) : at]
    return (
        find_secret(words[:-1], before, False, word)
        or find_secret(words, name, True, value)
        or find_secret(words, word[:2], True, word[2:])
    )


def _is_named_word(name: str, value: str, before: str) -> bool:
    """`name=value` as a word. What follows `sh -c` is a script, and read as a text."""
    is_option = name.startswith("-")
    return (is_option or before != "-c") and (is_secret_name(name, value) or (is_option and takes_secret(name, value)))


def _merge(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """In order, each place once."""
    end = 0
    for begin, stop in sorted(spans):
        if stop > end:
            yield max(begin, end), stop
            end = stop


def _cover(found: re.Match[str]) -> str:
    return "*" * len(found[0].encode("utf-8", "surrogateescape"))


def _span(found: re.Match[str]) -> tuple[int, int]:
    return next(
        found.span(name) for name, value in found.groupdict().items() if value is not None and name not in _LABELS
    )


_current = Redactor(environment=os.environ)


def switch_off() -> None:
    """For `--no-redact`: this process, and those that it forks, keep and show everything."""
    global _current
    _current = Redactor(is_on=False)


def is_on() -> bool:
    return _current._is_on


def redact(fact: _Fact) -> _Fact:
    return _current.fact(fact)


def redact_text(text: str) -> str:
    return _current.text(text)


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    return _current.argv(argv)


def redact_raw(data: bytes) -> bytes:
    return _current.raw(data)
