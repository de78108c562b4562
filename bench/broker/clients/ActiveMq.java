import java.io.File;
import java.util.Random;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/**
 * ActiveMQ's broker, embedded, and a JMS client of it.
 *
 * <pre>
 * ActiveMq serve PORT FOLDER
 * ActiveMq produce URL QUEUE COUNT SIZE WARM     persistent, asynchronous sends
 * ActiveMq consume URL QUEUE COUNT WARM          automatic acknowledgement
 * </pre>
 *
 * WARM messages go first, through a queue of their own and untimed, because a JVM starts slowly.
 */
public final class ActiveMq {
    private static final long GIGABYTE = 1L << 30;

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "serve" -> serve(Integer.parseInt(arguments[1]), new File(arguments[2]));
            case "produce" -> produce(arguments);
            case "consume" -> consume(arguments);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void serve(int port, File folder) throws Exception {
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(folder);
        store.setJournalDiskSyncStrategy("never");
        BrokerService broker = new BrokerService();
        broker.setUseJmx(false);
        broker.setPersistenceAdapter(store);
        broker.getSystemUsage().getMemoryUsage().setLimit(GIGABYTE / 2);
        broker.getSystemUsage().getStoreUsage().setLimit(20 * GIGABYTE);
        broker.addConnector("tcp://127.0.0.1:" + port);
        broker.start();
        broker.waitUntilStarted();
        System.out.println("serving");
        while (System.in.read() >= 0) {}
        broker.stop();
    }

    private static Connection connect(String url) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.start();
        return connection;
    }

    private static void produce(String[] arguments) throws Exception {
        byte[] payload = new byte[Integer.parseInt(arguments[4])];
        new Random(1).nextBytes(payload);
        send(arguments[1], arguments[2] + "-warm", Integer.parseInt(arguments[5]), payload);
        int count = Integer.parseInt(arguments[3]);
        answer(count, send(arguments[1], arguments[2], count, payload));
    }

    /** Seconds until the connection is closed, which waits until the broker has taken all. */
    private static double send(String url, String queue, int count, byte[] payload) throws Exception {
        Connection connection = connect(url);
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        long began = System.nanoTime();
        for (int i = 0; i < count; i++) {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(payload);
            producer.send(message);
        }
        connection.close();
        return (System.nanoTime() - began) / 1e9;
    }

    private static void consume(String[] arguments) throws Exception {
        receive(arguments[1], arguments[2] + "-warm", Integer.parseInt(arguments[4]));
        int count = Integer.parseInt(arguments[3]);
        answer(count, receive(arguments[1], arguments[2], count));
    }

    private static double receive(String url, String name, int count) throws Exception {
        Connection connection = connect(url);
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        long began = System.nanoTime();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int i = 0; i < count; i++) {
            if (consumer.receive(30_000) == null) {
                throw new IllegalStateException(i + " of " + count + " messages came");
            }
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        connection.close();
        return seconds;
    }

    private static void answer(int count, double seconds) {
        System.out.printf("{\"count\": %d, \"seconds\": %.6f}%n", count, seconds);
    }
}
