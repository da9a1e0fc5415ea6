// Qpid JMS signs in, sends one message and receives it: its arguments are a URL, a user and a password, "-" for none.
import jakarta.jms.Connection;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import org.apache.qpid.jms.JmsConnectionFactory;

public class SignIn {
    public static void main(String[] given) throws Exception {
        for (int at = 0; at < given.length; at += 3) {
            String told;
            JmsConnectionFactory factory = new JmsConnectionFactory(given[at]);
            try (Connection connection = given[at + 1].equals("-")
                    ? factory.createConnection()
                    : factory.createConnection(given[at + 1], given[at + 2])) {
                connection.start();
                Session session = connection.createSession();
                Queue queue = session.createQueue("orders");
                session.createProducer(queue).send(session.createTextMessage("in"));
                told = ((TextMessage) session.createConsumer(queue).receive(20_000)).getText();
            } catch (Throwable trouble) {
                told = trouble.getClass().getSimpleName();
            }
            System.out.println(told);
            System.out.flush();
        }
    }
}
