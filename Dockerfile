# The image holds two static binaries and nothing else. `make image` builds the same image without a
# docker daemon; this file is for those who have one. The binaries are built by `make build` first,
# because the filter compiler's WebAssembly module needs Debian's clang and libpcap's source.
FROM scratch
ARG TARGETARCH=amd64
COPY bin/linux_${TARGETARCH}/manager bin/linux_${TARGETARCH}/agent /
USER 65532:65532
ENTRYPOINT ["/manager"]
