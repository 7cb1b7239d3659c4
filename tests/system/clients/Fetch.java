import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Print the answer to a GET of URL; or, with a token and a body, to a POST. */
class Fetch {
    public static void main(String[] words) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(words[0]));
        if (words.length > 1) {
            request.header("Authorization", "Bearer " + words[1]);
            request.POST(HttpRequest.BodyPublishers.ofString(words[2]));
        }
        var client = HttpClient.newHttpClient();
        var answer = client.send(request.build(), HttpResponse.BodyHandlers.ofString());
        System.out.print(answer.body());
    }
}
