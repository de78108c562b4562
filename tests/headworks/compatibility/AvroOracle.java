import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.avro.*;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;
import org.apache.avro.util.RandomData;

/** Answers questions about schemas, one line each, with the real Avro Java library. */
public class AvroOracle {
  public static void main(String[] args) throws Exception {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
    PrintStream out =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    for (String line; (line = in.readLine()) != null; ) {
      String answer;
      try {
        answer = answer(line.split("\t", -1));
      } catch (Throwable error) {
        String text = error.getClass().getSimpleName() + ": " + error.getMessage();
        answer = "error\t" + text.replace('\n', ' ').replace('\t', ' ');
      }
      out.print(answer);
      out.print('\n');
      if (!in.ready()) out.flush();
    }
    out.flush();
  }

  static Schema parse(String text) {
    return new Schema.Parser().parse(text);
  }

  static String answer(String[] q) throws Exception {
    switch (q[0]) {
      case "canonical":
        return "ok\t" + parse(q[1]).toString();
      case "compatible":
        return compatible(parse(q[1]), parse(q[2]));
      case "decode":
        return decode(parse(q[1]), parse(q[2]), Integer.parseInt(q[3]), Long.parseLong(q[4]));
      default:
        throw new IllegalArgumentException(q[0]);
    }
  }

  static String compatible(Schema reader, Schema writer) {
    SchemaCompatibility.SchemaPairCompatibility pair =
        SchemaCompatibility.checkReaderWriterCompatibility(reader, writer);
    StringBuilder text = new StringBuilder("ok\t" + pair.getType());
    for (SchemaCompatibility.Incompatibility one : pair.getResult().getIncompatibilities()) {
      text.append('\t').append(one.getType()).append('@').append(one.getLocation());
    }
    return text.toString();
  }

  static ByteArrayOutputStream encoded(Schema schema, Object datum) throws Exception {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
    new GenericDatumWriter<Object>(schema).write(datum, encoder);
    encoder.flush();
    return bytes;
  }

  static String base64(ByteArrayOutputStream bytes) {
    return Base64.getEncoder().encodeToString(bytes.toByteArray());
  }

  /**
   * Random data under the writer's schema, read back with the reader's: how many fail, and of the
   * others the bytes as written and, after the colon, what was read, written with the reader's.
   */
  static String decode(Schema reader, Schema writer, int count, long seed) throws Exception {
    GenericDatumReader<Object> decode = new GenericDatumReader<>(writer, reader);
    StringBuilder text = new StringBuilder();
    int failed = 0;
    String why = "";
    for (Object datum : new RandomData(writer, count, seed)) {
      ByteArrayOutputStream bytes = encoded(writer, datum);
      try {
        Object read = decode.read(null, DecoderFactory.get().binaryDecoder(bytes.toByteArray(), null));
        text.append(' ').append(base64(bytes)).append(':').append(base64(encoded(reader, read)));
      } catch (Exception error) {
        failed++;
        why = error.toString().replace('\n', ' ').replace('\t', ' ');
      }
    }
    return "ok\t" + failed + "\t" + why + "\t" + text.toString().trim();
  }
}
