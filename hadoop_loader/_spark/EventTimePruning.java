/**
 * A rule of Spark's optimizer: a filter on the event time reads the partitions of its days alone.
 *
 * The table over files names the column that its partitions come from, in the property TIME. A
 * comparison of that column with a constant implies one of `datepartition`. The rule adds it.
 *
 * Rules:
 *
 * - No condition is ever replaced. What the rule does not understand adds no bound.
 * - The property is read from the metastore each time, because a session keeps old tables.
 * - Rows of a partition are of its day in UTC, and a partition's name begins with the day.
 * - Janino compiles this file, so it has no lambdas and no generics.
 */

import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

public class EventTimePruning extends Rule {
    private static final String TIME = "headworks.partition_time";
    private static final String PARTITION = "datepartition";

    private final SparkSession session;
    private final scala.runtime.AbstractFunction1 visit = new Visit(this);

    public EventTimePruning(SparkSession session) {
        this.session = session;
    }

    /** Makes the rule of a session, for SparkSessionExtensions. */
    public static class Builder extends scala.runtime.AbstractFunction1 {
        public Object apply(Object session) {
            return new EventTimePruning((SparkSession) session);
        }
    }

    private static class Visit extends scala.runtime.AbstractFunction1 {
        private final EventTimePruning rule;

        Visit(EventTimePruning rule) {
            this.rule = rule;
        }

        public Object apply(Object plan) {
            return rule.apply((TreeNode) plan);
        }
    }

    public TreeNode apply(TreeNode plan) {
        TreeNode visited = plan.mapChildren(visit);
        if (visited instanceof Filter && ((Filter) visited).child() instanceof LogicalRelation) {
            Filter filter = (Filter) visited;
            Expression condition = bounded(filter.condition(), (LogicalRelation) filter.child());
            return condition == filter.condition() ? filter : new Filter(condition, filter.child());
        }
        return visited;
    }

    /** Returns the condition and what it implies of the table's partitions. */
    private Expression bounded(Expression condition, LogicalRelation relation) {
        Attribute partition = partition(relation);
        if (partition == null || relation.catalogTable().isEmpty()) {
            return condition;
        }
        CatalogTable table = (CatalogTable) relation.catalogTable().get();
        if (table.properties().get(TIME).isEmpty()) {
            return condition;
        }
        List parts = new ArrayList();
        split(condition, parts);
        String time = null;
        Expression all = condition;
        for (int i = 0; i < parts.size(); i++) {
            Days days = new Days((Expression) parts.get(i));
            if (days.path == null) {
                continue;
            }
            time = time == null ? partitionTime(table) : time;
            if (days.path.equals(time)) {
                all = with(all, parts, days.lowerBound(partition));
                all = with(all, parts, days.upperBound(partition));
            }
        }
        return all;
    }

    private static Attribute partition(LogicalRelation relation) {
        for (int i = 0; i < relation.output().size(); i++) {
            Attribute found = (Attribute) relation.output().apply(i);
            if (found.name().equals(PARTITION)) {
                return found;
            }
        }
        return null;
    }

    private static void split(Expression condition, List parts) {
        if (condition instanceof And) {
            split(((And) condition).left(), parts);
            split(((And) condition).right(), parts);
        } else {
            parts.add(condition);
        }
    }

    private String partitionTime(CatalogTable table) {
        if (table.identifier().database().isEmpty()) {
            return "";
        }
        String database = (String) table.identifier().database().get();
        CatalogTable now =
            session.sharedState().externalCatalog().getTable(database, table.identifier().table());
        scala.Option found = now.properties().get(TIME);
        return found.isEmpty() ? "" : (String) found.get();
    }

    private static Expression with(Expression condition, List parts, Expression bound) {
        if (bound == null) {
            return condition;
        }
        for (int i = 0; i < parts.size(); i++) {
            if (((Expression) parts.get(i)).semanticEquals(bound)) {
                return condition;
            }
        }
        parts.add(bound);
        return new And(condition, bound);
    }

    /** The days of UTC on which a condition on one column can hold. */
    private static class Days {
        private static final long MICROS = 86400000000L;
        private static final long FIRST = LocalDate.of(1, 1, 1).toEpochDay();
        private static final long LAST = LocalDate.of(9999, 12, 31).toEpochDay();

        String path = null; // of the column; null: the condition says nothing of the days
        private long first = Long.MIN_VALUE;
        private long last = Long.MAX_VALUE;
        private long margin = 0; // days by which a date of another time zone may be off

        Days(Expression condition) {
            if (condition instanceof In) {
                read((In) condition);
            } else if (condition instanceof BinaryComparison) {
                read((BinaryComparison) condition);
            }
        }

        private void read(In condition) {
            String named = column(condition.value());
            for (int i = 0; named != null && i < condition.list().size(); i++) {
                if (!(condition.list().apply(i) instanceof Literal)) {
                    return;
                }
            }
            first = Long.MAX_VALUE;
            last = Long.MIN_VALUE;
            for (int i = 0; named != null && i < condition.list().size(); i++) {
                Literal literal = (Literal) condition.list().apply(i);
                if (literal.value() != null) {
                    first = Math.min(first, day(literal));
                    last = Math.max(last, day(literal));
                }
            }
            path = first <= last ? named : null;
        }

        private void read(BinaryComparison condition) {
            Expression left = (Expression) condition.left();
            Expression right = (Expression) condition.right();
            boolean turned = left instanceof Literal;
            Expression value = turned ? left : right;
            if (!(value instanceof Literal) || ((Literal) value).value() == null) {
                return;
            }
            boolean same = condition instanceof EqualTo || condition instanceof EqualNullSafe;
            boolean least = turned
                ? condition instanceof LessThan || condition instanceof LessThanOrEqual
                : condition instanceof GreaterThan || condition instanceof GreaterThanOrEqual;
            path = column(turned ? right : left);
            if (path != null) {
                first = same || least ? day((Literal) value) : first;
                last = same || !least ? day((Literal) value) : last;
            }
        }

        private String column(Expression compared) {
            if (compared instanceof Cast && compared.dataType().equals(DataTypes.DateType)) {
                Cast cast = (Cast) compared;
                margin = cast.timeZoneId().contains("UTC") ? 0 : 1;
                compared = (Expression) cast.child();
            }
            return compared.dataType().equals(DataTypes.TimestampType) ? name(compared) : null;
        }

        private static String name(Expression column) {
            if (column instanceof Attribute) {
                return ((Attribute) column).name();
            }
            if (column instanceof GetStructField) {
                String parent = name((Expression) ((GetStructField) column).child());
                String own = ((GetStructField) column).extractFieldName();
                return parent == null ? null : parent + "." + own;
            }
            return null;
        }

        private static long day(Literal literal) {
            long value = ((Number) literal.value()).longValue();
            return literal.dataType().equals(DataTypes.DateType) ? value : Math.floorDiv(value, MICROS);
        }

        Expression lowerBound(Attribute partition) {
            if (first == Long.MIN_VALUE) {
                return null;
            }
            return new GreaterThanOrEqual(partition, text(first - margin, partition));
        }

        Expression upperBound(Attribute partition) {
            if (last == Long.MAX_VALUE || last + margin >= LAST) {
                return null;
            }
            return new LessThan(partition, text(last + margin + 1, partition));
        }

        private static Literal text(long day, Attribute partition) {
            long known = Math.max(FIRST, Math.min(LAST, day));
            String name = LocalDate.ofEpochDay(known).toString();
            return new Literal(UTF8String.fromString(name), partition.dataType());
        }
    }
}
