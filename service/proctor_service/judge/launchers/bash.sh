# Sources setup, completion and tests; descriptor 3 holds the word that proves the end.
read -r PROCTOR_NAME < /proc/self/fd/3
: > /proc/self/fd/3
. ./setup.sh
enable -n enable  # so that the completion switches off no command of the shell
. ./solution.sh
# No function of the completion stands for a command of the shell. In posix mode none can stand for `unset` and `exit`.
# Where the mode cannot be set, or a function is read-only, the group ends, and no word is given back.
{
	POSIXLY_CORRECT=1
	\unset -f . : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown \
		echo enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd \
		printf pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset \
		ulimit umask unalias unset wait || \exit
	\unset POSIXLY_CORRECT
	\unalias -a
	\set +eu
	\set +o pipefail
	. ./tests.sh  # no condition: within one, the tests' own `set -e` would have no effect
	[ $? = 0 ] || exit
	printf '%s\n' "$PROCTOR_NAME" > /proc/self/fd/3
}
