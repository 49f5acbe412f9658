import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/**
 * Changes how many children a node ever had, which is what ZooKeeper numbers them by, in the data of a server that does
 * not run: DATA_DIRECTORY PATH COUNTER.
 */
class SetChildCounter {
	public static void main(String[] arguments) throws Exception {
		// Of what changes here nobody shall find that its digest is wrong.
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
