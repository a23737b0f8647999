# Sources setup, completion and tests; descriptor 3 holds the word that proves the end.
read -r PROCTOR_NAME < /proc/self/fd/3
: > /proc/self/fd/3
. ./setup.sh
. ./solution.sh
# No function of the completion stands for a command of the shell. In posix mode none can stand for `unset`.
POSIXLY_CORRECT=1
\unset -f builtin compgen source command test [ exit
\unset -f $(compgen -b)
\unset POSIXLY_CORRECT
\unalias -a
\set +eu
\set +o pipefail
. ./tests.sh  # no condition: within one, the tests' own `set -e` would have no effect
[ $? = 0 ] || exit
printf '%s\n' "$PROCTOR_NAME" > /proc/self/fd/3
