FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY pilot pilot
COPY protos protos
COPY webhook webhook
COPY ca ca
RUN python -m venv /opt/pyistiod && /opt/pyistiod/bin/pip install --no-cache-dir .

FROM python:3.12-slim
COPY --from=build /opt/pyistiod /opt/pyistiod
ENV PATH=/opt/pyistiod/bin:$PATH PYTHONUNBUFFERED=1
# The number of istio-proxy; the control plane needs no privilege and no writable file system.
USER 1337:1337
WORKDIR /
EXPOSE 8080 15010 15014
ENTRYPOINT ["pilot-discovery"]
CMD ["discovery"]
