import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/**
 * Sets the child counter of a node, by which ZooKeeper numbers sequential children, in the data of a stopped server.
 * Arguments: DATA_DIRECTORY PATH COUNTER.
 */
class SetChildCounter {
	public static void main(String[] arguments) throws Exception {
		// The changed tree would not match its digest.
		System.setProperty("zookeeper.digest.enabled", "false");
		var directory = new File(arguments[0]);
		var log = new FileTxnSnapLog(directory, directory);
		var tree = new DataTree();
		var sessions = new ConcurrentHashMap<Long, Integer>();
		log.restore(tree, sessions, (header, record, digest) -> {});
		tree.getNode(arguments[1]).stat.setCversion(Integer.parseInt(arguments[2]));
		log.save(tree, sessions, true);
		log.close();
	}
}
