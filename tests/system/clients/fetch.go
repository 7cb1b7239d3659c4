// Print the answer to a GET of URL; or, with a token and a body, to a POST.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	method, body := http.MethodGet, io.Reader(nil)
	if len(os.Args) > 2 {
		method, body = http.MethodPost, strings.NewReader(os.Args[3])
	}
	request, err := http.NewRequest(method, os.Args[1], body)
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) > 2 {
		request.Header.Set("Authorization", "Bearer "+os.Args[2])
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		log.Fatal(err)
	}
}
