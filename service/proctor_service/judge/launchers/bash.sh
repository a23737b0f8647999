# Sources setup, completion and tests; descriptor 3 holds the word that proves the end. One group, so that bash reads it whole.
{
	read -r PROCTOR_NAME < /proc/self/fd/3
	: > /proc/self/fd/3
	PROCTOR_NAMEtests=$(< ./tests.sh)
	. ./setup.sh
	PROCTOR_NAMEoptions=$(set +o; shopt -p inherit_errexit nocasematch || :)
	PROCTOR_NAMEflags=$-  # `set -e` does not reach the shell above
	enable -n enable  # so that the completion switches off no command of the shell
	. ./solution.sh
	# No function of the completion stands for a command of the shell. In posix mode none can stand for `unset`, `exit`,
	# `trap`, `readonly` and `eval`. Where the mode cannot be set, or a function is read-only, no word is given back.
	POSIXLY_CORRECT=1
	[[ -o posix ]] || : "${PROCTOR_NAMEnone?}"
	\unset -f . : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown \
		echo enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd \
		printf pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset \
		ulimit umask unalias unset wait || \exit
	\trap - DEBUG ERR RETURN
	[[ -z $(\readonly -f) ]] || \exit
	\unset POSIXLY_CORRECT
	\unalias -a
	\eval "$PROCTOR_NAMEoptions"  # those of before the completion
	[[ $PROCTOR_NAMEflags != *e* ]] || \set -e
	\hash -r
	. <(printf '%s\n' "$PROCTOR_NAMEtests")  # no condition: within one, the tests' own `set -e` would have no effect
	[ $? = 0 ] || exit
	printf '%s\n' "$PROCTOR_NAME" > /proc/self/fd/3
	exit
}
