# The service in an image. `make image` builds it with buildah or docker.
#
# Build arguments:
#   BASE_IMAGE  a Debian or Ubuntu with Python 3.11 or later, venv and pip; both stages stand on it. A
#               company's certificate or package mirror belongs into that image (its pip.conf and
#               sources.list), not here. `make image` takes it from deploy/base-image.txt.
#   EXTRAS      extras of proctor-service, in brackets: "[aviato]"; "" for an image without clients of
#               Redis, PostgreSQL and OpenTelemetry.
#   COMMIT      the commit of these sources, for `proctor --version`, /healthz and the journal.
#   SMOKE       "" leaves out the judging of some programs at the end of the build.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG EXTRAS="[otel,postgres,redis]"
ARG SMOKE=1
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# Before anything is installed: the packages of the base, which are those of the image.
RUN dpkg-query -W -f '${Package}\t${Version}\t${Architecture}\n' > /base-packages.tsv
RUN apt-get -qq update && apt-get -qq install --no-install-recommends tini
WORKDIR /src
COPY constraints.txt ./
# What builds the wheels is pinned too; pip's isolated builds would fetch the newest.
RUN python3 -m venv /build && /build/bin/pip install --quiet -c constraints.txt cyclonedx-bom hatchling
COPY client client
COPY service service
ARG COMMIT=""
RUN PROCTOR_COMMIT="$COMMIT" /build/bin/pip wheel --quiet --no-deps --no-build-isolation -w /wheels ./client ./service
# Outside /usr: what stands below it is to be seen in every sandbox, and the service is not to be.
# The byte code is made here, as the root is read-only later, and without times, so that the same
# sources give the same image.
RUN python3 -m venv --without-pip /app \
 && /build/bin/pip --python /app/bin/python install --quiet --no-compile -c constraints.txt \
      /wheels/proctor_client-*.whl "$(ls /wheels/proctor_service-*.whl)${EXTRAS}" \
 && /app/bin/python -m compileall -q --invalidation-mode unchecked-hash /app/lib \
 && cp /usr/bin/tini-static /app/bin/tini
# Files that make the base's compilers start faster. Without compilers there are none, and without the
# files the plain compilers run.
RUN env -i PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 /app/bin/proctor languages prepare \
 || echo "some compilers start without prepared files" >&2
# The bill of materials is of what is installed: of Python's packages, the base's, and the interpreter.
COPY deploy/sbom.py ./
RUN /build/bin/cyclonedx-py environment --output-reproducible -o /python.cdx.json /app/bin/python \
 && python3 sbom.py /python.cdx.json /base-packages.tsv /app/sbom.cdx.json
# An image that does not judge right and wrong programs is not built. Builders allow few namespaces or
# none, so isolation is not tried here: `proctor doctor` tries it where the image runs.
RUN cd / && /app/bin/tini --version >/dev/null \
 && if [ -n "$SMOKE" ]; then \
      env -i PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PROCTOR_ALLOW_DEGRADED=true /app/bin/proctor demo; \
    fi

FROM ${BASE_IMAGE}
COPY --from=build /app /app
# No journal unless one is named: a file in the container would be lost with it.
ENV PATH=/app/bin:$PATH \
    HOME=/tmp \
    PROCTOR_HOST=0.0.0.0 \
    PROCTOR_PORT=8080 \
    PROCTOR_LOG_FORMAT=json \
    PROCTOR_JOURNAL=off
# By number, so that Kubernetes can see that it is not root.
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["/app/bin/python", "-I", "-c", \
  "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"PROCTOR_PORT\"]}/healthz', timeout=2)"]
# tini passes SIGTERM on to the service, which then drains, and reaps orphans of the pid namespace.
ENTRYPOINT ["/app/bin/tini", "--", "/app/bin/proctor"]
CMD ["serve"]
