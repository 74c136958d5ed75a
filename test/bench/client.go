package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// httpClient is one keep-alive connection to the gateway that sends one request at a time. It knows just as much of
// HTTP/1.1 as the gateway's answers need: net/http would cost more CPU than the gateway itself, on the same cores.
type httpClient struct {
	conn   net.Conn
	reader *bufio.Reader
	// out and body are reused from request to request.
	out, body []byte
	stop      func() bool
}

const (
	// answerTimeout is the longest wait for one answer, well above the gateway's own deadline of a request.
	answerTimeout = 30 * time.Second
	readerBytes   = 8 << 10
	// collectionPath is where the gateway of this benchmark has its only collection.
	collectionPath = "/v1/records"
)

// dialGateway connects to the gateway's listener. The connection ends with ctx.
func dialGateway(ctx context.Context, address string) (*httpClient, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &httpClient{conn: conn, reader: bufio.NewReaderSize(conn, readerBytes), stop: stop}, nil
}

// close implements client.
func (c *httpClient) close() {
	c.stop()
	_ = c.conn.Close()
}

// create implements client.
func (c *httpClient) create(_ context.Context, _ string, document []byte) error {
	return c.exchange("POST", "", document, http.StatusCreated)
}

// read implements client: the body must be the record of the key, which begins with it.
func (c *httpClient) read(_ context.Context, key string) error {
	if err := c.exchange("GET", key, nil, http.StatusOK); err != nil {
		return err
	}
	if !bytes.Contains(c.body[:min(len(c.body), minDocumentBytes)], []byte(key)) {
		return errWrongKey
	}
	return nil
}

// update implements client. The record is there, so that 201 would be an error.
func (c *httpClient) update(_ context.Context, key string, document []byte) error {
	return c.exchange("PUT", key, document, http.StatusOK)
}

// exchange sends a request and leaves the body of the answer in c.body. Keys need no escaping.
func (c *httpClient) exchange(method, key string, document []byte, want int) error {
	out := append(append(c.out[:0], method...), " "+collectionPath...)
	if key != "" {
		out = append(append(out, '/'), key...)
	}
	out = append(out, " HTTP/1.1\r\nHost: bench\r\n"...)
	if document != nil {
		out = append(out, "Content-Type: application/json\r\nContent-Length: "...)
		out = strconv.AppendInt(out, int64(len(document)), 10)
		out = append(out, "\r\n"...)
	}
	c.out = append(append(out, "\r\n"...), document...)
	if err := c.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	status, err := c.receive()
	if err == nil && status != want {
		err = fmt.Errorf("%s answered %d: %.200s", method, status, c.body)
	}
	return err
}

// receive reads one answer, which must say its length.
func (c *httpClient) receive() (status int, err error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	const version = "HTTP/1.1 "
	if len(line) < len(version)+3 || string(line[:len(version)]) != version {
		return 0, fmt.Errorf("not an answer in HTTP/1.1: %.60q", line)
	}
	if status, err = strconv.Atoi(string(line[len(version) : len(version)+3])); err != nil {
		return 0, err
	}
	length := -1
	for {
		if line, err = c.reader.ReadSlice('\n'); err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			break
		}
		const name = "Content-Length: " // as net/http writes it
		if len(line) > len(name) && string(line[:len(name)]) == name {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(name):]))); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, fmt.Errorf("the answer (status %d) does not say its length", status)
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	_, err = io.ReadFull(c.reader, c.body)
	return status, err
}
