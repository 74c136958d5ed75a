# The gateway and nothing else: a static binary that runs as nobody.
#
#     docker build --build-arg VERSION=v1.2.3 --tag keyrange .
#     docker run --rm --publish 127.0.0.1:8080:8080 --volume ./deploy/compose:/etc/keyrange:ro keyrange

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG VERSION=dev
ARG TARGETOS
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /gateway ./cmd/gateway

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /gateway /gateway
# Requests for records, and metrics with operations.
EXPOSE 8080 9090
# SIGTERM drains, see server.shutdown_grace.
ENTRYPOINT ["/gateway"]
CMD ["serve", "--config", "/etc/keyrange/config.yaml"]
