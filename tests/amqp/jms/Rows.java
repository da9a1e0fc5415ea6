// A client of nodes written with Qpid JMS, as JMS has it: each line that it prints is one row and what came of it.
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;

public class Rows {
    static final long PATIENCE = 20_000;
    static String first;
    static String second;

    interface Row {
        String run() throws Exception;
    }

    public static void main(String[] ports) throws Exception {
        first = "amqp://127.0.0.1:" + ports[0];
        second = "amqp://127.0.0.1:" + ports[1];
        row("send, close, receive", Rows::hello);
        row("sends that nobody waits for, then close", Rows::hasty);
        row("receiveNoWait", () -> noWait("", 100));
        row("receiveNoWait with prefetch 0", () -> noWait("?jms.prefetchPolicy.all=0", 100));
        row("receiveNoWait of large messages", () -> noWait("?jms.prefetchPolicy.all=0", 400_000));
        row("receive with prefetch 0", Rows::pulled);
        row("a browser", Rows::browsed);
        row("what was prefetched", Rows::prefetched);
        row("a durable subscription", Rows::durable);
        row("a shared subscription", Rows::shared);
        row("a request over a temporary queue", Rows::requested);
        row("a temporary topic", Rows::temporary);
        row("a transacted session", () -> refused(c -> c.createSession(true, Session.SESSION_TRANSACTED)));
        row("a selector", () -> refused(c -> {
            Session session = c.createSession();
            session.createConsumer(session.createQueue("jms.selector"), "a = 1");
        }));
        row("a selector of a topic", Rows::selected);
        row("another selector", Rows::reselected);
        row("priorities", Rows::priorities);
        row("a delivery delay", Rows::later);
        row("failover", Rows::failover);
    }

    static void row(String name, Row row) {
        String told;
        try {
            told = row.run();
        } catch (Throwable trouble) {
            told = "failed: " + trouble;
        }
        System.out.println("[\"" + name + "\", \"" + told.replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"]");
        System.out.flush();
    }

    static Connection connect(String url) throws JMSException {
        Connection connection = new JmsConnectionFactory(url).createConnection();
        connection.start();
        return connection;
    }

    static void send(Session session, String queue, String... bodies) throws JMSException {
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        for (String body : bodies) {
            producer.send(session.createTextMessage(body));
        }
        producer.close();
    }

    static String next(MessageConsumer consumer) throws JMSException {
        return text(consumer.receive(PATIENCE));
    }

    static String text(Message message) throws JMSException {
        return message == null ? "nothing" : ((TextMessage) message).getText();
    }

    static String hello() throws JMSException {
        try (Connection connection = connect(first)) {
            Session session = connection.createSession();
            send(session, "jms.hello", "one", "two");
            MessageConsumer consumer = session.createConsumer(session.createQueue("jms.hello"));
            return next(consumer) + " " + next(consumer);
        }
    }

    /** The queue delivers by priority: so the test has made it. */
    static String priorities() throws JMSException {
        try (Connection connection = connect(first + "?jms.prefetchPolicy.all=0")) {
            Session session = connection.createSession();
            MessageProducer producer = session.createProducer(session.createQueue("jms.priorities"));
            for (int priority : new int[] {1, 4, 9, 4, 0}) {
                producer.setPriority(priority);
                producer.send(session.createTextMessage("" + priority));
            }
            MessageConsumer consumer = session.createConsumer(session.createQueue("jms.priorities"));
            StringBuilder got = new StringBuilder();
            for (int i = 0; i < 5; i++) {
                Message message = consumer.receive(PATIENCE);
                got.append(text(message)).append(message.getJMSPriority()).append(' ');
            }
            return got.toString().trim();
        }
    }

    static String later() throws JMSException {
        try (Connection connection = connect(first)) {
            Session session = connection.createSession();
            MessageProducer producer = session.createProducer(session.createQueue("jms.later"));
            MessageConsumer consumer = session.createConsumer(session.createQueue("jms.later"));
            producer.setDeliveryDelay(600);
            long sent = System.currentTimeMillis();
            producer.send(session.createTextMessage("late"));
            producer.setDeliveryDelay(0);
            producer.send(session.createTextMessage("now"));
            String got = next(consumer) + " " + next(consumer);
            return got + (System.currentTimeMillis() - sent >= 600 ? " in time" : " early");
        }
    }

    static String hasty() throws JMSException {
        try (Connection connection = connect(first + "?jms.forceAsyncSend=true")) {
            send(connection.createSession(), "jms.hasty", "one", "two", "three");
        }
        try (Connection connection = connect(first)) {
            Session session = connection.createSession();
            MessageConsumer consumer = session.createConsumer(session.createQueue("jms.hasty"));
            return next(consumer) + " " + next(consumer) + " " + next(consumer);
        }
    }

    static String noWait(String options, int size) throws JMSException {
        String name = "jms.noWait" + options.length() + "." + size;
        String body = String.join("", Collections.nCopies(size, "x"));
        try (Connection connection = connect(first + options)) {
            Session session = connection.createSession();
            send(session, name, body, body, body);
            MessageConsumer consumer = session.createConsumer(session.createQueue(name));
            int count = 0;
            while (consumer.receiveNoWait() != null) {
                count++;
            }
            return String.valueOf(count);
        }
    }

    static String pulled() throws JMSException {
        try (Connection connection = connect(first + "?jms.prefetchPolicy.all=0")) {
            Session session = connection.createSession();
            send(session, "jms.pulled", "one", "two");
            MessageConsumer consumer = session.createConsumer(session.createQueue("jms.pulled"));
            return next(consumer) + " " + next(consumer) + " " + text(consumer.receive(100));
        }
    }

    static String browsed() throws JMSException {
        try (Connection connection = connect(first)) {
            Session session = connection.createSession();
            send(session, "jms.browsed", "one", "two", "three");
            QueueBrowser browser = session.createBrowser(session.createQueue("jms.browsed"));
            List<String> bodies = new ArrayList<>();
            for (Object message : Collections.list(browser.getEnumeration())) {
                bodies.add(text((Message) message));
            }
            browser.close();
            return String.join(" ", bodies);
        }
    }

    static String prefetched() throws Exception {
        for (int times = 0; times < 3; times++) {
            try (Connection connection = connect(first)) {
                Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
                if (times == 0) {
                    send(session, "jms.prefetched", "one", "two", "three");
                }
                MessageConsumer consumer = session.createConsumer(session.createQueue("jms.prefetched"));
                consumer.receive(PATIENCE);
            }
        }
        try (Connection connection = connect(first)) {
            Session session = connection.createSession();
            MessageConsumer consumer = session.createConsumer(session.createQueue("jms.prefetched"));
            List<String> counts = new ArrayList<>();
            for (int count = 0; count < 3; count++) {
                counts.add(consumer.receive(PATIENCE).getStringProperty("JMSXDeliveryCount"));
            }
            return String.join(" ", counts);
        }
    }

    static String durable() throws JMSException {
        StringBuilder told = new StringBuilder();
        String url = first + "?jms.clientID=durable-client";
        for (String step : new String[] {"subscribe", "miss", "come back", "unsubscribe", "miss", "subscribe"}) {
            try (Connection connection = connect(step.equals("miss") ? first : url)) {
                Session session = connection.createSession();
                Topic topic = session.createTopic("jms.news");
                if (step.equals("miss")) {
                    session.createProducer(topic).send(session.createTextMessage("missed"));
                } else if (step.equals("unsubscribe")) {
                    session.unsubscribe("mine");
                } else {
                    MessageConsumer consumer = session.createDurableConsumer(topic, "mine");
                    told.append(step).append(": ").append(text(consumer.receive(step.equals("come back") ? PATIENCE : 300))).append(", ");
                }
            }
        }
        return told + refused(c -> c.createSession().unsubscribe("never-there"));
    }

    static String shared() throws JMSException {
        try (Connection connection = connect(first); Connection other = connect(first)) {
            Session session = connection.createSession();
            Topic topic = session.createTopic("jms.shared");
            MessageConsumer one = session.createSharedDurableConsumer(topic, "both");
            Session elsewhere = other.createSession();
            MessageConsumer two = elsewhere.createSharedDurableConsumer(elsewhere.createTopic("jms.shared"), "both");
            MessageProducer producer = session.createProducer(topic);
            for (int count = 0; count < 4; count++) {
                producer.send(session.createTextMessage("shared"));
            }
            int count = 0;
            for (long end = System.currentTimeMillis() + PATIENCE; count < 4 && System.currentTimeMillis() < end; ) {
                count += one.receive(50) != null ? 1 : 0;
                count += two.receive(50) != null ? 1 : 0;
            }
            one.close();
            two.close();
            session.unsubscribe("both");
            return String.valueOf(count);
        }
    }

    static String requested() throws Exception {
        try (Connection asks = connect(first); Connection serves = connect(second)) {
            Session session = asks.createSession();
            TemporaryQueue replies = session.createTemporaryQueue();
            MessageConsumer answers = session.createConsumer(replies);
            Session service = serves.createSession();
            MessageConsumer requests = service.createConsumer(service.createQueue("jms.requests"));
            MessageProducer replier = service.createProducer(null);
            MessageProducer asker = session.createProducer(session.createQueue("jms.requests"));
            StringBuilder told = new StringBuilder();
            for (String question : new String[] {"one", "two"}) {
                TextMessage request = session.createTextMessage(question);
                request.setJMSReplyTo(replies);
                asker.send(request);
                Message asked = requests.receive(PATIENCE);
                TextMessage answer = service.createTextMessage("re: " + text(asked));
                answer.setJMSCorrelationID(asked.getJMSMessageID());
                replier.send(asked.getJMSReplyTo(), answer);
                Message answered = answers.receive(PATIENCE);
                told.append(text(answered)).append(request.getJMSMessageID().equals(answered.getJMSCorrelationID()) ? ", " : " (another), ");
            }
            Queue foreign = service.createQueue(replies.getQueueName());
            answers.close();
            replies.delete();
            return told + refused(c -> c.createSession().createProducer(foreign)).split(":")[0];
        }
    }

    static String temporary() throws Exception {
        try (Connection asks = connect(first); Connection serves = connect(second)) {
            Session session = asks.createSession();
            TemporaryTopic replies = session.createTemporaryTopic();
            MessageConsumer one = session.createConsumer(replies);
            MessageConsumer two = session.createConsumer(replies);
            Session service = serves.createSession();
            service.createProducer(service.createTopic(replies.getTopicName())).send(service.createTextMessage("to all"));
            String told = next(one) + ", " + next(two) + ", ";
            Topic foreign = service.createTopic(replies.getTopicName());
            one.close();
            two.close();
            replies.delete();
            return told + refused(c -> c.createSession().createProducer(foreign)).split(":")[0];
        }
    }

    static String selected() throws Exception {
        try (Connection connection = connect(first + "?jms.clientID=selects")) {
            Session session = connection.createSession();
            Topic topic = session.createTopic("jms.selected");
            MessageConsumer some = session.createConsumer(topic, "colour = 'red' AND JMSPriority > 4");
            MessageConsumer lasting = session.createDurableConsumer(topic, "reds", "colour = 'red'", false);
            MessageProducer producer = session.createProducer(topic);
            for (String colour : new String[] {"blue", "red", "green", "red"}) {
                producer.setPriority(9);
                TextMessage message = session.createTextMessage(colour);
                message.setStringProperty("colour", colour);
                producer.send(message);
            }
            return next(some) + " " + next(some) + " " + text(some.receive(100)) + ", " + next(lasting) + " " + next(lasting);
        }
    }

    /** Another selector makes a durable subscription anew, as JMS says; while somebody consumes it is refused. */
    static String reselected() throws Exception {
        StringBuilder told = new StringBuilder();
        for (String colour : new String[] {"red", "red", "blue", "blue"}) {
            try (Connection connection = connect(first + "?jms.clientID=reselects")) {
                Session session = connection.createSession();
                Topic topic = session.createTopic("jms.reselected");
                MessageConsumer consumer = session.createDurableConsumer(topic, "some", "colour = '" + colour + "'", false);
                told.append(text(consumer.receive(told.length() > 0 ? 500 : 100))).append(", ");
                consumer.close();
                MessageProducer producer = session.createProducer(topic);
                for (String each : new String[] {"blue", "red", "green"}) {
                    TextMessage message = session.createTextMessage(each);
                    message.setStringProperty("colour", each);
                    producer.send(message);
                }
            }
        }
        try (Connection connection = connect(first); Connection other = connect(first)) {
            Session session = connection.createSession();
            session.createSharedConsumer(session.createTopic("jms.reselected"), "both", "colour = 'red'");
            Session elsewhere = other.createSession();
            elsewhere.createSharedConsumer(elsewhere.createTopic("jms.reselected"), "both", "colour = 'blue'");
            return told + "taken";
        } catch (JMSException refusal) {
            return told + refusal.getMessage();
        }
    }

    interface Asking {
        void ask(Connection connection) throws Exception;
    }

    static String refused(Asking asking) throws JMSException {
        try (Connection connection = connect(first + "?jms.clientID=refused")) {
            asking.ask(connection);
            return "taken";
        } catch (JMSException refusal) {
            return refusal.getClass().getSimpleName() + ": " + refusal.getMessage();
        } catch (Exception trouble) {
            return "failed: " + trouble;
        }
    }

    static String failover() throws Exception {
        try (Connection connection = connect("failover:(" + first + "," + second + ")?failover.maxReconnectAttempts=50")) {
            Session session = connection.createSession();
            send(session, "jms.failover", "before");
            MessageConsumer consumer = session.createConsumer(session.createQueue("jms.failover"));
            String before = next(consumer);
            System.out.println("[\"kill the first\", \"\"]");
            System.out.flush();
            System.in.read();
            send(session, "jms.failover", "after");
            return before + " " + next(consumer);
        }
    }
}
