#!/bin/sh
# Builds the image, or with `pin` writes the base's digest into deploy/base-image.txt: `make image` and
# `make pin-base` call it, with these variables: IMAGE, BASE_IMAGE, EXTRAS, SLIM, SMOKE, BUILDAH.
set -eu
cd "$(dirname "$0")/.."
pins=deploy/base-image.txt
base=${BASE_IMAGE:-$(cat $pins)}
name=${base%%@*}

if command -v "${BUILDAH%% *}" >/dev/null; then
  policy=missing
  [ "${1:-}" != pin ] || policy=ifnewer
  $BUILDAH pull --quiet --policy $policy "$base" >/dev/null
  digest=$($BUILDAH inspect --type image --format '{{.FromImageDigest}}' "$base")
elif command -v docker >/dev/null; then
  BUILDAH=
  docker image inspect "$base" >/dev/null 2>&1 || docker pull --quiet "$base" >/dev/null
  digest=$(docker image inspect --format '{{join .RepoDigests "\n"}}' "$base" | sed -n 's/.*@//p;q')
else
  echo "make image needs buildah or docker" >&2
  exit 1
fi

if [ "${1:-}" = pin ]; then
  [ -n "$digest" ] || { echo "$base has no digest: it is of no registry" >&2; exit 1; }
  echo "$name@$digest" | tee $pins
  exit
fi

[ "$name" != "$base" ] || echo "the base is not pinned: \`make pin-base\` writes its digest into $pins" >&2
time=$(git log -1 --format=%ct 2>/dev/null || echo 0)
set -- --build-arg "BASE_IMAGE=$base" \
  --build-arg "COMMIT=$(git rev-parse HEAD 2>/dev/null || true)" \
  --label "org.opencontainers.image.base.name=$name" \
  --label "org.opencontainers.image.base.digest=$digest"
if [ -n "${SLIM:-}" ]; then
  set -- "$@" --build-arg EXTRAS=
elif [ -n "${EXTRAS:-}" ]; then
  set -- "$@" --build-arg "EXTRAS=$EXTRAS"
fi
[ "${SMOKE-1}" = 1 ] || set -- "$@" --build-arg SMOKE=
if [ -n "$BUILDAH" ]; then
  $BUILDAH build --format docker --timestamp "$time" "$@" -t "$IMAGE" .
else
  SOURCE_DATE_EPOCH=$time docker build "$@" -t "$IMAGE" .
fi
