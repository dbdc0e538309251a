package dev.simyard.e2e;

import cz.cesnet.cloud.occi.Model;
import cz.cesnet.cloud.occi.api.Client;
import cz.cesnet.cloud.occi.api.EntityBuilder;
import cz.cesnet.cloud.occi.api.exception.CommunicationException;
import cz.cesnet.cloud.occi.api.http.HTTPClient;
import cz.cesnet.cloud.occi.api.http.auth.BasicAuthentication;
import cz.cesnet.cloud.occi.core.Action;
import cz.cesnet.cloud.occi.core.ActionInstance;
import cz.cesnet.cloud.occi.core.Category;
import cz.cesnet.cloud.occi.core.Link;
import cz.cesnet.cloud.occi.core.Resource;
import cz.cesnet.cloud.occi.parser.MediaType;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * The life of a compute as a user of jOCCI sees it.
 *
 * <p>Prints what it sees, one {@code name=value} per line. After a line {@code at=PLACE} it waits for a line, so that
 * somebody may look at what the server made of it.
 *
 * <p>Arguments: the os_tpl and the resource_tpl of the compute; the action of its service to call, and a parameter of
 * that action as {@code name=value}. OCCI_URL, OCCI_TOKEN and OCCI_CA_FILE are in the environment, as
 * {@code .run/dev/env} has them. jOCCI knows no bearer tokens: the token is the password of Basic authentication.
 */
public final class JocciClient {
    private static final Duration PATIENCE = Duration.ofSeconds(90);
    private static final Duration PAUSE = Duration.ofMillis(100);
    private static final BufferedReader INPUT =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private final Client client;
    private final Model model;

    private JocciClient(Client client) {
        this.client = client;
        this.model = client.getModel();
    }

    public static void main(String[] arguments) throws Exception {
        BasicAuthentication authentication = new BasicAuthentication("jocci", System.getenv("OCCI_TOKEN"));
        authentication.setCAPath(authorities(Path.of(System.getenv("OCCI_CA_FILE"))).toString());
        URI endpoint = URI.create(System.getenv("OCCI_URL"));
        Client client = new HTTPClient(endpoint, authentication, MediaType.TEXT_PLAIN, false);
        client.connect();
        say("connected", client.isConnected());
        new JocciClient(client).run(arguments[0], arguments[1], arguments[2], arguments[3].split("=", 2));
    }

    /** Makes a folder of *.pem files, from which jOCCI reads certificates; as a single file it accepts only key stores. */
    private static Path authorities(Path certificate) throws IOException {
        Path folder = Files.createTempDirectory("authorities");
        folder.toFile().deleteOnExit();
        Files.copy(certificate, folder.resolve("ca.pem")).toFile().deleteOnExit();
        return folder;
    }

    private void run(String osTemplate, String resourceTemplate, String serviceAction, String[] parameter)
            throws Exception {
        say("kinds", terms(model.getKinds()));
        say("os_tpl", terms(model.findRelatedMixins("os_tpl")));
        say("resource_tpl", terms(model.findRelatedMixins("resource_tpl")));
        say("listed", listed());

        Resource wanted = new EntityBuilder(model).getResource("compute");
        wanted.addMixin(model.findMixin(osTemplate, "os_tpl"));
        wanted.addMixin(model.findMixin(resourceTemplate, "resource_tpl"));
        wanted.setTitle("made by jOCCI");
        wanted.addAttribute("occi.compute.hostname", "jocci");
        if (System.getenv("OCCI_SSH_KEY") != null) {
            wanted.addMixin(model.findMixin(
                    URI.create("http://schemas.ogf.org/occi/infrastructure/credentials#ssh_key")));
            wanted.addAttribute("occi.credentials.ssh.publickey", System.getenv("OCCI_SSH_KEY"));
        }
        URI location = client.create(wanted);
        say("location", location);
        say("listed_after_creation", listed());

        Resource compute = described(location, "active", serviceAction);
        say("id", compute.getId());
        say("title", compute.getTitle());
        say("mixins", terms(compute.getMixins()));
        say("actions", offered(compute));
        for (String name : List.of("cores", "memory", "hostname", "state")) {
            say(name, compute.getValue("occi.compute." + name));
        }
        for (Link link : compute.getLinks()) {
            say("target_of_" + link.getKind().getTerm(), link.getTarget());
        }
        pause("created");

        ActionInstance call = invocation(compute, serviceAction);
        call.addAttribute(call.getAction().getAttribute(parameter[0]), parameter[1]);
        say("triggered", client.trigger(location, call));
        pause("triggered");

        say("stop", client.trigger(location, invocation(compute, "stop")));
        compute = described(location, "inactive", "start");
        say("offered_when_stopped", offered(compute));
        pause("stopped");
        ActionInstance stop = new ActionInstance(
                model.findAction(URI.create("http://schemas.ogf.org/occi/infrastructure/compute/action#stop")));
        say("stop_again", client.trigger(location, stop));
        say("start", client.trigger(location, invocation(compute, "start")));
        described(location, "active", serviceAction);
        pause("started");

        say("deleted", client.delete(location));
        say("listed_after_deletion", listed());
        say("described_after_deletion", refusal(() -> client.describe(location)));
    }

    /** Returns the computes; jOCCI reads an empty listing as one empty URI. */
    private List<URI> listed() throws CommunicationException {
        return client.list("compute").stream().filter(uri -> !uri.toString().isEmpty()).toList();
    }

    /** Returns the compute once it is in a state and offers an action. */
    private Resource described(URI location, String state, String action) throws Exception {
        Instant end = Instant.now().plus(PATIENCE);
        while (true) {
            Resource compute = (Resource) client.describe(location).get(0);
            if (state.equals(compute.getValue("occi.compute.state")) && offered(compute).contains(action)) {
                return compute;
            }
            if (Instant.now().isAfter(end)) {
                throw new IllegalStateException("not " + state + " with " + action + " in time:\n" + compute.toText());
            }
            Thread.sleep(PAUSE.toMillis());
        }
    }

    private static Set<String> offered(Resource compute) {
        return compute.getActions().stream().map(Action::getTerm).collect(Collectors.toSet());
    }

    /** Returns an invocation of an offered action; only the model knows the action's attributes. */
    private ActionInstance invocation(Resource compute, String term) {
        for (Action action : compute.getActions()) {
            if (action.getTerm().equals(term)) {
                return new ActionInstance(model.findAction(URI.create(action.getIdentifier())));
            }
        }
        throw new IllegalStateException(compute.getId() + " offers " + offered(compute) + ", not " + term);
    }

    private static List<String> terms(Collection<? extends Category> categories) {
        return categories.stream().map(Category::getTerm).sorted().toList();
    }

    private interface Call {
        Object run() throws Exception;
    }

    private static String refusal(Call call) throws Exception {
        try {
            return "not refused: " + call.run();
        } catch (CommunicationException refused) {
            return String.valueOf(refused.getMessage()).replaceAll("\\s+", " ");
        }
    }

    private static void say(String name, Object value) {
        System.out.println(name + "=" + value);
    }

    private static void pause(String place) throws IOException {
        say("at", place);
        if (INPUT.readLine() == null) {
            throw new IOException("nobody answers at " + place);
        }
    }
}
