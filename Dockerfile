# The same commit gives the same files: versions are those of deploy/constraints.txt, times are SOURCE_DATE_EPOCH, byte code is checked by hash.
# Name the base image by its digest (--build-arg PYTHON=python@sha256:…) to have the same one again, too.
ARG PYTHON=python:3.12-slim
FROM ${PYTHON} AS build
ARG SOURCE_DATE_EPOCH=0
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONHASHSEED=0
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY pilot pilot
COPY protos protos
COPY webhook webhook
COPY ca ca
COPY deploy deploy
RUN python -m venv --without-pip /opt/pyistiod \
 && pip --python /opt/pyistiod/bin/python install --no-compile --constraint deploy/constraints.txt '.[kubernetes]' \
 && /opt/pyistiod/bin/python -m compileall -q --invalidation-mode checked-hash /opt/pyistiod/lib \
 && find /opt/pyistiod -exec touch --no-dereference --date=@${SOURCE_DATE_EPOCH} {} +

FROM ${PYTHON}
COPY --from=build /opt/pyistiod /opt/pyistiod
# It writes nowhere: the root file system may be read-only.
ENV PATH=/opt/pyistiod/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# The number of istio-proxy; the control plane needs no privilege.
USER 1337:1337
WORKDIR /
EXPOSE 8080 15010 15012 15014 15017
ENTRYPOINT ["pilot-discovery"]
CMD ["discovery"]
