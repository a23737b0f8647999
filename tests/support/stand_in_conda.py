"""A folder of conda as its installer makes it, with one environment: files by their path in an image.

`activate`, `conda.sh` and what `conda shell.posix activate` prints are those of conda 24, without its solver.
"""

from __future__ import annotations

ROOT = "opt/miniconda3"
ENVIRONMENT = f"{ROOT}/envs/testbed"
ACTIVATE = f"""#!/bin/sh
_CONDA_ROOT="/{ROOT}"
# Copyright (C) 2012 Anaconda, Inc
# SPDX-License-Identifier: BSD-3-Clause
\\. "$_CONDA_ROOT/etc/profile.d/conda.sh" || return $?
conda activate "$@"
"""
CONDA_SH = f"""export CONDA_EXE='/{ROOT}/bin/conda'
export _CE_M=''
export _CE_CONDA=''
export CONDA_PYTHON_EXE='/{ROOT}/bin/python'

__conda_exe() (
    "$CONDA_EXE" $_CE_M $_CE_CONDA "$@"
)

__conda_hashr() {{
    if [ -n "${{ZSH_VERSION:+x}}" ]; then
        \\rehash
    elif [ -n "${{POSH_VERSION:+x}}" ]; then
        :  # pass
    else
        \\hash -r
    fi
}}

__conda_activate() {{
    if [ -n "${{CONDA_PS1_BACKUP:+x}}" ]; then
        PS1="$CONDA_PS1_BACKUP"
        \\unset CONDA_PS1_BACKUP
    fi
    \\local ask_conda
    ask_conda="$(PS1="${{PS1:-}}" __conda_exe shell.posix "$@")" || \\return
    \\eval "$ask_conda"
    __conda_hashr
}}

conda() {{
    \\local cmd="${{1-__missing__}}"
    case "$cmd" in
        activate|deactivate)
            __conda_activate "$@"
            ;;
        *)
            __conda_exe "$@"
            ;;
    esac
}}

if [ -z "${{CONDA_SHLVL+x}}" ]; then
    \\export CONDA_SHLVL=0
    PATH="$(\\dirname "$(\\dirname "$CONDA_EXE")")/condabin${{PATH:+":${{PATH}}"}}"
    \\export PATH
    if [ -z "${{PS1+x}}" ]; then
        PS1=
    fi
fi
"""
CONDA = f"""#!/bin/sh
prefix=/{ROOT}/envs/$3
if [ ! -d "$prefix" ]; then
    echo "EnvironmentNameNotFound: Could not find conda environment: $3" >&2
    exit 1
fi
cat <<END
PS1='($3) '
export PATH='$prefix/bin:$PATH'
export CONDA_PREFIX='$prefix'
export CONDA_SHLVL='1'
export CONDA_DEFAULT_ENV='$3'
export CONDA_PROMPT_MODIFIER='($3) '
END
for each in "$prefix"/etc/conda/activate.d/*.sh; do echo ". \\"$each\\""; done
"""
VARIABLES = """export RING_HOME="/srv/ring with blanks"
export RING_LINES='one
two'
echo "the environment testbed is activated"
"""
FILES = {
    f"{ROOT}/bin/activate": ACTIVATE,
    f"{ROOT}/bin/conda": CONDA,
    f"{ROOT}/etc/profile.d/conda.sh": CONDA_SH,
    f"{ENVIRONMENT}/etc/conda/activate.d/env_vars.sh": VARIABLES,
    f"{ENVIRONMENT}/pyvenv.cfg": "home = /usr/bin\n",
}
LINKS = {f"{ENVIRONMENT}/bin/python": "/usr/bin/python3"}
