"""Every command of mqadmin, with arguments, and how far its output has to be the same on both brokers."""

from __future__ import annotations

import re
from dataclasses import dataclass

SUCCESS = 0


@dataclass(frozen=True)
class Run:
    """One call of mqadmin. Words in braces are filled in: the broker, a message's ids, a client, a folder."""

    text: str
    refused: int = SUCCESS
    """The response code with which our broker refuses it, whatever RocketMQ does."""
    only: str = ""
    """Lines to compare; all when empty. Tables of topics and settings have rows of each broker's own."""
    but: str = ""
    """Lines that are not compared."""
    keys: bool = False
    """Of each line only what is before its value is compared."""
    quiet: bool = False
    """It prints nothing when all is well."""
    sign: str = ""
    """What a command prints that keeps the code of the refusal to itself."""
    since: str = "4.9.7"
    """The oldest mqadmin that has the command, or these options of it."""
    until: str = "5.5.0"
    """The newest."""

    @property
    def command(self) -> str:
        return self.text.partition(" ")[0]


NEW = "5.5.0"
OURS = r"^#|Adm|adm_"
"""Headings, and rows of topics and groups that the test made."""
# Here nothing is queued before pools of threads and reads are not timed; and what only one of them tells.
UNLIKE = r"ThreadPoolQueueCapacity|getMessageEntireTimeMax|commitLogDiskRatio_|heldPulls|brokerVersion "
CONFIG = r"=====|^(brokerName|brokerClusterName|listenPort|flushDiskType|autoCreateTopicEnable) "
NAMESRV_CONFIG = r"=====|^(orderMessageEnable|scanNotActiveBrokerInterval|configBlackList) "

RUNS: tuple[Run, ...] = (
    Run("clusterList"),
    Run("clusterList -m"),
    Run("updateTopic -c DefaultCluster -t AdmT -r 4 -w 4"),
    Run("updateTopic -b {b} -t AdmT2 -r 2 -w 2"),
    Run("updateTopic -b {b} -t AdmT3 -r 2 -w 2 -a +message.type=NORMAL", since=NEW),
    Run("updateTopic -c DefaultCluster -t AdmOrd -r 2 -w 2 -o true"),
    Run("updateTopicList -b {b} -f {f}/topics.json", since=NEW),
    Run("updateTopicPerm -b {b} -t AdmT2 -p 6"),
    Run("updateTopicPerm -b {b} -t AdmT2 -p 4"),
    Run("updateOrderConf -m put -t AdmOrd -v broker-a:2"),
    Run("updateOrderConf -m get -t AdmOrd"),
    Run("updateOrderConf -m delete -t AdmOrd"),
    Run("topicList", only=OURS),
    Run("topicList -c", only=OURS),
    Run("topicRoute -t AdmT"),
    Run("topicRoute -t AdmT -l", since=NEW),
    Run("topicRoute -t NoSuchTopic"),
    Run("topicClusterList -t AdmT"),
    Run("topicStatus -t AdmT"),
    Run("topicStatus -t NoSuchTopic"),
    Run("allocateMQ -t AdmT -i c1,c2"),
    Run("sendMessage -t AdmT -b broker-a -i 0 -k key2 -c TagA -p hello-admin"),
    Run("sendMsgStatus -b broker-a -s 16 -c 2"),
    Run("checkMsgSendRT -t AdmT -a 3 -s 64"),
    Run("brokerStatus -b {b}", but=UNLIKE, keys=True),
    Run("brokerStatus -c DefaultCluster", but=UNLIKE, keys=True),
    Run("updateSubGroup -c DefaultCluster -g adm_g -r 5 -q 1"),
    Run("updateSubGroupList -b {b} -f {f}/groups.json", since=NEW),
    Run("getConsumerConfig -g adm_g"),
    Run("setConsumeMode -c DefaultCluster -t AdmT -g adm_g -m POP -q 0", since=NEW),
    Run("setConsumeMode -b {b} -t AdmT -g adm_g -m PULL -q 0", since=NEW),
    Run("queryMsgByKey -t AdmT -k key1"),
    Run("queryMsgByKey -t AdmT -k nosuchkey"),
    Run("queryMsgById -t AdmT -i {id}", since=NEW),
    Run("queryMsgById -i {id}", until="4.9.7"),
    Run("queryMsgByUniqueKey -t AdmT -i {key}"),
    Run("queryMsgByOffset -t AdmT -b broker-a -i 0 -o 0"),
    Run("queryMsgTraceById -i {key}"),
    Run("printMsg -t AdmT -d true"),
    Run("printMsgByQueue -t AdmT -a broker-a -i 0 -p true -d true"),
    Run("consumeMessage -t AdmT -c 1"),
    Run("queryCq -t AdmT -q 0 -i 0 -c 2 -b {b}"),
    Run("queryCq -t AdmT -q 0 -i 0 -c 2 -b {b} -g adm_c"),
    Run("brokerConsumeStats -b {b}", only=OURS + "|Diff"),
    Run("producer -b {b}"),
    Run("producerConnection -g adm_p -t AdmT"),
    Run("producerConnection -g nobody -t AdmT"),
    Run("consumerConnection -g adm_c"),
    Run("consumerConnection -g nobody"),
    Run("consumerProgress", only=OURS),
    Run("consumerProgress -g adm_c"),
    Run("consumerProgress -g adm_c -s true"),
    Run("consumerStatus -g adm_c"),
    Run("consumerStatus -g adm_c -i {client} -s", only="^#"),
    Run("queryMsgById -t AdmT -i {id} -g adm_c -d {client}", since=NEW),
    Run("queryMsgByUniqueKey -t AdmT -i {key} -g adm_c -d {client}"),
    Run("cloneGroupOffset -s adm_c -d adm_g -t AdmT -o false"),
    Run("resetOffsetByTime -g adm_g -t AdmT -s now"),
    Run("resetOffsetByTime -g adm_g -t AdmT -s now -b broker-a -q 0 -o 0", since=NEW),
    Run("resetOffsetByTime -g nosuch -t AdmT -s now"),
    Run("skipAccumulatedMessage -g adm_g -t AdmT"),
    Run("getBrokerConfig -b {b}", only=CONFIG, keys=True),
    Run("getBrokerConfig -c DefaultCluster", only=CONFIG, keys=True),
    Run("updateBrokerConfig -b {b} -k shortPollingTimeMills -v 900"),
    Run("updateBrokerConfig -b {b} -k brokerConfigPath -v /x", refused=16),
    Run("getNamesrvConfig", only=NAMESRV_CONFIG, keys=True),
    Run("updateNamesrvConfig -k scanNotActiveBrokerInterval -v 6000"),
    Run("updateNamesrvConfig -k kvConfigPath -v /x", refused=16),
    Run("updateKvConfig -s NSX -k kk -v vv"),
    Run("deleteKvConfig -s NSX -k kk"),
    Run("wipeWritePerm -b broker-a"),
    Run("addWritePerm -b broker-a"),
    Run("statsAll", only=OURS),
    Run("statsAll -t AdmT"),
    Run("haStatus -b {b}", since=NEW),
    Run("getColdDataFlowCtrInfo -b {b}", since=NEW),
    Run("cleanExpiredCQ -b {b}"),
    Run("cleanUnusedTopic -b {b}"),
    Run("deleteExpiredCommitLog -b {b}"),
    Run("exportMetadata -c DefaultCluster -f {f}/export"),
    Run("exportMetadata -c DefaultCluster -t -f {f}/export"),
    Run("exportMetadata -c DefaultCluster -g -f {f}/export"),
    # That of 4.9 ends with a NullPointerException, on RocketMQ 5.5.0 as well.
    Run("exportConfigs -c DefaultCluster -f {f}/export", since=NEW),
    Run("exportMetrics -c DefaultCluster -f {f}/export", since=NEW),
    Run("updateColdDataFlowCtrGroupConfig -b {b} -g adm_g -v 1000", refused=3, since=NEW),
    Run("removeColdDataFlowCtrGroupConfig -b {b} -g adm_g", refused=3, since=NEW),
    Run("setCommitLogReadAheadMode -b {b} -m 1", refused=3, since=NEW),
    Run("resetMasterFlushOffset -b {b} -o 0", refused=3, since=NEW),
    Run("exportPopRecord -b {b}", refused=3, since=NEW),
    Run("getBrokerEpoch -b broker-a", refused=3, since=NEW),
    Run("getSyncStateSet -a {n} -b broker-a", refused=3, since=NEW),
    Run("getControllerMetaData -a {n}", refused=3, since=NEW),
    Run("getControllerConfig -a {n}", refused=3, since=NEW),
    Run("updateControllerConfig -a {n} -k a -v b", refused=3, since=NEW),
    Run("electMaster -a {n} -b 0 -bn broker-a -c DefaultCluster", refused=3, since=NEW),
    Run("cleanBrokerMetadata -a {n} -bn broker-a -c DefaultCluster -b 1", refused=3, since=NEW),
    Run("addBroker -c {b} -b /nothing", refused=3, since=NEW),
    Run("removeBroker -c {b} -b DefaultCluster:broker-a:1", refused=3, since=NEW),
    Run("updateStaticTopic -c DefaultCluster -t AdmStatic -qn 2", refused=3, since=NEW),
    Run("remappingStaticTopic -c DefaultCluster -t AdmStatic", refused=3, sign="No topic route", since=NEW),
    Run("rocksDBConfigToJson -c DefaultCluster -t topics", refused=3, since=NEW),
    Run("checkRocksdbCqWriteProgress -c DefaultCluster", refused=3, since=NEW),
    Run("switchTimerEngine -b {b} -e F", refused=3, since=NEW),
    Run("getBrokerLiteInfo -b {b}", refused=3, since=NEW),
    Run("getParentTopicInfo -p AdmT", refused=3, sign="[broker-a] error", since=NEW),
    Run("getLiteTopicInfo -p AdmT -l lite1", refused=3, sign="[broker-a] error", since=NEW),
    Run("getLiteClientInfo -p AdmT -g adm_c -c nobody", refused=3, sign="[broker-a] error", since=NEW),
    Run("getLiteGroupInfo -p AdmT -g adm_c", refused=3, sign="[broker-a] error", since=NEW),
    Run("triggerLiteDispatch -b broker-a -p AdmT -g adm_c", refused=3, sign="error", since=NEW),
    Run("deleteSubGroup -c DefaultCluster -g adm_g"),
    Run("deleteTopic -c DefaultCluster -t AdmT2"),
    Run("deleteTopic -c DefaultCluster -t TBW102"),
    Run("topicRoute -t AdmT2"),
    *(
        Run(text, refused=3, since=NEW)
        for text in (
            "createUser -b {b} -u alice -p 12345678 -t Normal",
            "updateUser -b {b} -u alice -p 12345679",
            "getUser -b {b} -u alice",
            "listUser -b {b}",
            "copyUser -f {b} -t {b} -u alice",
            "createAcl -b {b} -s User:alice -r Topic:AdmT -a Pub -d Allow",
            "updateAcl -b {b} -s User:alice -r Topic:AdmT -a Sub -d Allow",
            "getAcl -b {b} -s User:alice",
            "listAcl -b {b}",
            "copyAcl -f {b} -t {b} -s User:alice",
            "deleteAcl -b {b} -s User:alice",
            "deleteUser -b {b} -u alice",
        )
    ),
    *(
        Run(text, refused=3, until="4.9.7")
        for text in (
            "updateAclConfig -b {b} -a alice -s 12345678",
            "deleteAclConfig -b {b} -a alice",
            "clusterAclConfigVersion -b {b}",
            "updateGlobalWhiteAddr -b {b} -g 10.0.0.1",
            "getAclConfig -b {b}",
        )
    ),
    Run("startMonitoring", quiet=True),
)

FOREVER = "clusterRT"
"""Sends and prints until it is killed."""
LOCAL = ("dumpCompactionLog", "exportMetadataInRocksDB")
"""They read files of RocketMQ's where they run, and ask nobody."""

_SHAPES = (
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?"), "ADDRESS"),
    (re.compile(r"\b[0-9A-Fa-f]{32,}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d+)?"), "TIME"),
    (re.compile(r"\bV\d_\d_\d\b"), "VERSION"),
    (re.compile(r"\beval=(?:true|false)"), "eval=SO"),
    (re.compile(r"-?\d+(?:\.\d+)?(?:E-?\d+)?"), "N"),
    (re.compile(r"(?:\bN\b[ ,]*)+"), "N "),
    (re.compile(r"\s+"), " "),
)


def shape(run: Run, output: str, errors: str, folder: str = "") -> set[str]:
    """What a command printed, without the values: its headings, keys and texts, and the errors it met."""
    output = output.replace(folder, "FOLDER") if folder else output
    lines = [line for line in output.splitlines() if "|-" not in line and line.strip(" -=")]
    lines = [line for line in lines if re.search(run.only, line)] if run.only else lines
    lines = [line for line in lines if not re.search(run.but, line)] if run.but else lines
    lines = [re.split(r" *[:=] ", line)[0] for line in lines] if run.keys else lines
    found = re.findall(r"CODE: \d+ +DESC: .*", errors)
    return {_shape(line) for line in [*lines, *found]}


def _shape(line: str) -> str:
    # Properties come from a hash table: those that share a place in it in the order of the message's own.
    line = re.sub(r"\{([^{}]*)\}", lambda found: "{" + ", ".join(sorted(found[1].split(", "))) + "}", line)
    for pattern, word in _SHAPES:
        line = pattern.sub(word, line)
    return line.strip()
