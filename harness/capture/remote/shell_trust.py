"""What trust.py asks, in POSIX shell: for hosts where no Python has been found yet that could be asked.

One line, and no single quote, exclamation mark or doubled backslash: it goes through a login shell of any kind. Says no
where trust.py knows more: of a private group, and of an access list, it sees only that a group may write.
"""

from __future__ import annotations

# The system's own folders, from which the first of all is taken: nothing else on PATH has been looked at yet.
_SYSTEM = "/usr/bin:/bin:/usr/sbin:/sbin"
# Of one line of `ls -ln`; a link is one that leads nowhere, because ls follows them.
_MAY = (
    "may() { case $1 in d????????[tT]*) ;; ?????w*|????????w*) return 1;; esac; "
    "case $3 in 0|$u) ;; *) return 1;; esac; }"
)
_LINES = (
    'lines() { IFS=$n; set -f; for l in $1; do IFS=" "; case $l in /*|total*|l*) ;; ?*) set -- $l; '
    'may "$@" || { set +f; unset IFS; return 1; };; esac; done; set +f; unset IFS; }'
)
# Leaves in $r the path without links, if nobody but root and us can write it or put another in its place.
_UP = (
    'up() { r=$(readlink -f "$1" 2>/dev/null); test -n "$r" && test -e "$r" || return 1; w=$r; set --; '
    'while test -n "$w"; do set -- "$@" "$w"; w=${w%/*}; done; '
    'o=$(LC_ALL=C ls -ldn / "$@" 2>/dev/null) && lines "$o"; }; '
    'ok() { up "$1" && test -f "$r"; }'
)
# And all below it, but for packages. Not every system has `find`, which needs a tenth of the time.
_TREE = (
    'tree() { up "$1" || return 1; test -d "$r" || return 0; d=$r; set --; for e in "$d"/*; do case $e in '
    '*/site-packages|*/dist-packages) ;; *) test -e "$e" && set -- "$@" "$e";; esac; done; test $# -gt 0 || return 0; '
    'if o=$(find -L "$@" -type l -o -perm -020 -print -o -perm -002 -print -o -user 0 -o -user $u -o -print '
    '2>/dev/null); then test -z "$o"; else '
    'o=$(LC_ALL=C; export LC_ALL; ls -Lldn "$@"; ls -LlnRA "$@") 2>/dev/null; test -n "$o" && lines "$o"; fi; }'
)
# The standard library, searched for upwards from the interpreter's folder; and of the Python in $r all that it reads
# before any code: pyvenv.cfg, the home that is named there, the standard library.
_PYTHON = (
    'libs() { x=$1; while :; do for f in "$x"/lib*/python3* "$x"/lib*/libpython*; do test -e "$f" || continue; '
    'tree "$f" || return 1; done; for f in "$x"/lib*/python3*/os.py; do test -e "$f" && return 0; done; '
    'test -n "$x" || return 0; x=${x%/*}; done; }; '
    'py() { p=$r; for c in "${p%/*}/pyvenv.cfg" "${p%/*/*}/pyvenv.cfg"; do test -e "$c" || continue; '
    'up "$c" || return 1; h=; while IFS= read -r l || test -n "$l"; do case ${l%%=*} in '
    '*[hH][oO][mM][eE]*) h=${l#*=};; esac; done <"$c"; while :; do case $h in " "*) h=${h# };; *) break;; esac; done; '
    'test -z "$h" || { up "$h" && libs "$r"; } || return 1; done; libs "${p%/*}" && r=$p; }'
)
# $P keeps the PATH that was found; ours is what is safe of it.
_PATH = (
    f"P=$PATH; S={_SYSTEM}; PATH=$S:/run/current-system/sw/bin; command -v ls >/dev/null || PATH=$P; "
    'n=$(printf "\\nx"); n=${n%x}; u=$(id -u); '
)
_SAFE_PATH = (
    'IFS=:; set -f; set -- $P; set +f; unset IFS; F=; for k in "$@"; do '
    'case :$S: in *:"$k":*) F=$F:$k; continue;; esac; case $k in /*) up "$k" && '
    'case $(ls -ldn "$r") in ????????w*) ;; *) F=$F:$k;; esac;; esac; done; '
    'PATH=${F#:}; test -n "$PATH" || PATH=$S; '
    "for k in cat find id ls ps readlink sample sed sleep tr uname wc; do q=$(command -v $k) || continue; "
    'case :$S: in *:"${q%/*}":*) ;; *) ok "$q" || PATH=$S;; esac; done; '
)
TRUST = _PATH + "; ".join((_MAY, _LINES, _UP, _TREE, _PYTHON)) + "; " + _SAFE_PATH
