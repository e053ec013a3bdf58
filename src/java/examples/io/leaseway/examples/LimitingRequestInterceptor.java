package io.leaseway.examples;

import io.leaseway.Limiter;
import io.leaseway.Permit;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpRequest;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.client.ClientHttpRequestExecution;
import org.springframework.http.client.ClientHttpRequestInterceptor;
import org.springframework.http.client.ClientHttpResponse;

/**
 * Makes the requests of a Spring RestClient or RestTemplate wait for a limiter. A gauge's permit is in use until the
 * response is closed:
 *
 * <pre>{@code
 * RestClient.builder().requestInterceptor(new LimitingRequestInterceptor(gauge)).build();
 * }</pre>
 */
public final class LimitingRequestInterceptor implements ClientHttpRequestInterceptor {
    private final Limiter limiter;

    public LimitingRequestInterceptor(Limiter limiter) {
        this.limiter = limiter;
    }

    @Override
    public ClientHttpResponse intercept(HttpRequest request, byte[] body, ClientHttpRequestExecution execution)
            throws IOException {
        Permit permit;
        try {
            permit = limiter.begin();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while waiting for a permit");
        }
        ClientHttpResponse response = null;
        try {
            response = execution.execute(request, body);
            return new LimitedResponse(response, permit);
        } finally {
            if (response == null) {
                permit.close();
            }
        }
    }

    private record LimitedResponse(ClientHttpResponse response, Permit permit) implements ClientHttpResponse {
        @Override
        public void close() {
            try {
                response.close();
            } finally {
                permit.close();
            }
        }

        @Override
        public HttpStatusCode getStatusCode() throws IOException {
            return response.getStatusCode();
        }

        @Override
        public String getStatusText() throws IOException {
            return response.getStatusText();
        }

        @Override
        public HttpHeaders getHeaders() {
            return response.getHeaders();
        }

        @Override
        public InputStream getBody() throws IOException {
            return response.getBody();
        }
    }
}
