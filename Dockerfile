# The build is reproducible: the base image is pinned by its digest, and all packages by their hashes, SOURCE_DATE_EPOCH sets times,
# and bytecode is validated by hash.
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea AS base

FROM base AS build
# The repository of this image, which is the default in its charts
ARG IMAGE=localhost/pyistiod
ARG SOURCE_DATE_EPOCH=0
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONHASHSEED=0
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY pilot pilot
COPY protos protos
COPY webhook webhook
COPY gotemplate gotemplate
COPY ca ca
COPY deploy deploy
RUN pip install --require-hashes --requirement deploy/build-requirements.txt \
 && python -m venv --without-pip /opt/pyistiod \
 && pip --python /opt/pyistiod/bin/python install --no-compile --only-binary :all: --require-hashes --requirement deploy/constraints.txt \
 && /opt/pyistiod/bin/python -m deploy --image "${IMAGE}" \
 && pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && pip --python /opt/pyistiod/bin/python install --no-compile --no-deps --no-index /wheels/*.whl \
 && /opt/pyistiod/bin/python -m compileall -q --invalidation-mode checked-hash /opt/pyistiod/lib \
 && find /opt/pyistiod -exec touch --no-dereference --date=@${SOURCE_DATE_EPOCH} {} +

FROM base
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pyistiod" \
      org.opencontainers.image.description="A service-mesh control plane for Envoy, configured like Istio" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/pyistiod /opt/pyistiod
# Nothing is written, so the root file system may be read-only.
ENV PATH=/opt/pyistiod/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# The user ID of istio-proxy. The control plane needs no privileges.
USER 1337:1337
WORKDIR /
EXPOSE 8080 15010 15012 15014 15017
ENTRYPOINT ["pilot-discovery"]
CMD ["discovery"]
