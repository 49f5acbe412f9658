//! A group of Redis processes that are connected with each other, any of which can be cut off.

use std::{io, path::PathBuf, time::Duration};

use tempfile::TempDir;

use super::{
    cluster::{Member, wait_for},
    directory::scratch,
    node::Node,
    proxy::Proxy,
    redirect::Redirect,
    redis_node::RedisNode,
    redis_wire::{RedisAnswer, Wire},
};

/// How long the processes may take to agree. The usual timing needs some seconds. A busy machine may need more than 30
/// s, for which a Sentinel is inactive after it missed two seconds.
const LIMIT: Duration = Duration::from_secs(120);
/// The time limit of a question.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);
/// The time limit of a command.
const PATIENCE: Duration = Duration::from_secs(30);

/// The group. Clients use the processes' own ports; the connections between processes go through proxies.
pub(super) struct Group {
    links: Vec<Link>,
    /// Pairs between which nothing passes, beside the members that are cut off.
    parted: Vec<[usize; 2]>,
    peers: Vec<Peer>,
    library: PathBuf,
    #[cfg_attr(
        not(feature = "tls"),
        expect(dead_code, reason = "only certificates are looked for there; it lives as long as the group")
    )]
    directory: TempDir,
}

struct Peer {
    member: Member<RedisNode>,
    password: Option<String>,
    /// The ports for other members: its own port, and in a cluster the bus port.
    addresses: Vec<u16>,
}

/// The link from one member to one port of another.
struct Link {
    from: usize,
    to: usize,
    address: u16,
    proxy: Proxy,
}

impl Group {
    /// A group without members.
    pub(super) fn new() -> Self {
        let directory = scratch();
        let library = Redirect::build(directory.path());
        let (links, parted, peers) = (Vec::new(), Vec::new(), Vec::new());
        Self { links, parted, peers, library, directory }
    }

    /// Adds a process that is not started yet and has these ports beside its own, and returns its index.
    pub(super) fn admit(&mut self, mut node: RedisNode, password: Option<&str>, addresses: &[u16]) -> usize {
        let index = self.peers.len();
        node.with_redirect(&self.library);
        let addresses = std::iter::once(node.port).chain(addresses.iter().copied()).collect();
        let password = password.map(str::to_owned);
        self.peers.push(Peer { member: Member::new(node), password, addresses });
        for other in 0..index {
            self.link(index, other);
            self.link(other, index);
            self.redirect(other);
        }
        self.redirect(index);
        self.arrange();
        index
    }

    /// Lets the others reach a member by one more port, which it announces as its own.
    pub(super) fn name_port(&self, member: usize, port: u16) {
        let address = self.port(member);
        for other in self.indices().filter(|other| *other != member) {
            let named =
                self.routes(other).find(|(known, _)| *known == address).map(|(_, proxy)| (port, proxy));
            self.set_redirect(other, self.routes(other).chain(named));
        }
    }

    /// The group's directory.
    #[cfg(feature = "tls")]
    pub(super) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// The number of members.
    pub(super) const fn len(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn indices(&self) -> std::ops::Range<usize> {
        0..self.peers.len()
    }

    /// The port of a member for clients.
    pub(super) fn port(&self, member: usize) -> u16 {
        self.node(member).port
    }

    /// The ports of a member for other members: its own port, and the last of the others.
    pub(super) fn addresses(&self, member: usize) -> [u16; 2] {
        let addresses = &self.peers[member].addresses;
        [addresses[0], *addresses.last().expect("the first is its port")]
    }

    /// The member with this port.
    pub(super) fn by_port(&self, port: &str) -> Option<usize> {
        self.indices().find(|&member| self.port(member).to_string() == port)
    }

    /// Whether a member runs and is connected to the others.
    pub(super) fn is_present(&self, member: usize) -> bool {
        self.peers[member].member.is_present()
    }

    /// Starts a member with its data and waits until it has read it. If it runs, it is restarted.
    pub(super) fn start(&mut self, member: usize) {
        let Peer { member, .. } = &mut self.peers[member];
        member.start();
        member.node.wait_until_serving();
    }

    pub(super) fn kill(&mut self, member: usize) {
        self.peers[member].member.kill();
    }

    pub(super) fn pause(&mut self, member: usize) {
        self.peers[member].member.pause();
    }

    pub(super) fn resume(&mut self, member: usize) {
        self.peers[member].member.resume();
    }

    /// Cuts a member off from the others: current connections end, and new ones fail.
    pub(super) fn cut(&mut self, member: usize) {
        self.peers[member].member.cut = true;
        self.arrange();
    }

    /// Like [`cut`](Self::cut), only between two members, until one of them is healed.
    pub(super) fn part(&mut self, members: [usize; 2]) {
        self.parted.push(members);
        self.arrange();
    }

    /// Reconnects a member to all other members that are not cut off themselves.
    pub(super) fn heal(&mut self, member: usize) {
        self.peers[member].member.cut = false;
        self.parted.retain(|pair| !pair.contains(&member));
        self.arrange();
    }

    /// Sets a member's clock to the machine's time plus `seconds`.
    pub(super) fn set_clock(&self, member: usize, seconds: i64) {
        self.node(member).set_clock(seconds);
    }

    /// Sends commands to a member on one connection and returns the reply to the last one.
    ///
    /// # Errors
    /// The error of the member, or the reason why there is no answer.
    pub(super) fn answer(&self, member: usize, commands: &[&[&str]]) -> RedisAnswer {
        let answer = self.exchange(member, commands, PATIENCE);
        answer.unwrap_or_else(|error| Err(format!("no answer: {error}")))
    }

    /// Like [`answer`](Self::answer), for a command that must not fail.
    pub(super) fn command(&self, member: usize, words: &[&str]) -> Vec<String> {
        self.answer(member, &[words]).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The reply of a present member to a question. `None`: there is no reply.
    pub(super) fn look(&self, member: usize, words: &[&str]) -> Option<Vec<String>> {
        let present = self.is_present(member);
        present.then(|| self.exchange(member, &[words], LOOK_PATIENCE).ok()?.ok()).flatten()
    }

    /// Whether a member reports that it is a master. `false` for a member that is not present.
    pub(super) fn is_master(&self, member: usize) -> bool {
        self.look(member, &["ROLE"]).is_some_and(|role| role[0] == "master")
    }

    /// The port of the master that a member is connected to as its replica.
    pub(super) fn follows(&self, member: usize) -> Option<String> {
        let role = self.look(member, &["ROLE"])?;
        let [kind, _, port, state, ..] = role.as_slice() else { return None };
        (kind == "slave" && state == "connected").then(|| port.clone())
    }

    fn node(&self, member: usize) -> &RedisNode {
        &self.peers[member].member.node
    }

    fn exchange(&self, member: usize, commands: &[&[&str]], patience: Duration) -> io::Result<RedisAnswer> {
        let password = self.peers[member].password.as_deref();
        let mut wire = Wire::connect(self.port(member), password, patience)?;
        let mut answer = Ok(Vec::new());
        for words in commands {
            answer = wire.ask(words)?;
        }
        Ok(answer)
    }

    fn link(&mut self, from: usize, to: usize) {
        let addresses = &self.peers[to].addresses;
        let link = |&address: &u16| Link { from, to, address, proxy: Proxy::start(address) };
        self.links.extend(addresses.iter().map(link));
    }

    /// The ports by which a member calls the others, and the proxy port for each.
    fn routes(&self, member: usize) -> impl Iterator<Item = (u16, u16)> {
        let own = self.links.iter().filter(move |link| link.from == member);
        own.map(|link| (link.address, link.proxy.port()))
    }

    fn redirect(&self, member: usize) {
        self.set_redirect(member, self.routes(member));
    }

    fn set_redirect(&self, member: usize, routes: impl Iterator<Item = (u16, u16)>) {
        self.node(member).redirect().expect("each member has one").set(routes);
    }

    /// Blocks and unblocks the links according to the state of the members.
    fn arrange(&self) {
        for Link { from, to, proxy, .. } in &self.links {
            let ends = [*from, *to];
            let parted = self.parted.iter().any(|pair| ends.iter().all(|end| pair.contains(end)));
            if parted || ends.iter().any(|&end| self.peers[end].member.cut) {
                proxy.block();
            } else {
                proxy.unblock();
            }
        }
    }
}

/// Waits until `look` finds something.
///
/// # Panics
/// If that takes far too long.
pub(super) fn wait<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_for(LIMIT, look).unwrap_or_else(|| panic!("{what}: not after {LIMIT:?}"))
}
