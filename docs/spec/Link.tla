---------------------------------- MODULE Link ----------------------------------
(* The protocol of docs/links.md: messages go from a source to a target in another slot or site, none lost, none twice,
   in order, whatever workers, calls and servers fail.

   A message is a value m in 1..Messages. At the source it has a number; an entry is the pair <<number, m>>. Workers are
   any number of processes that all believe the link to be theirs: a lease is not modelled, for safety must not need it.
   A commit that was sent may arrive at any time, several times, after others, or never.

   The constants in capitals at the end switch single rules off; each then lets an invariant fail
   (tests/links/spec.py). *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Messages,        \* how many are sent
  Workers,         \* a set
  Limit,           \* messages that the target may hold, credit included
  Replicas,        \* of the target, a set; each is a copy that is behind
  MaxCrashes, MaxTargetFailovers, MaxSourceFailovers,
  Competes,        \* whether the source is a queue with another consumer
  Ends,            \* whether the link is ended while its workers go on
  BARRIER,         \* release only what a replica has (promotion is of one that has most)
  PREDECESSOR,     \* commit only what follows the mark
  MARK,            \* commit nothing at or below the mark
  JUMP,            \* numbers go up at a failover of the source beyond all that were ever given
  RENUMBER,        \* what comes back from the other consumer below what the link took gets a new number
  FENCE            \* who ends the link has both ends refuse those before, first

VARIABLES
  sent,            \* how many messages were sent
  top,             \* the highest number ever given: what the clock stands for
  src,             \* the source
  old,             \* what a replica of the source has of it: some earlier state
  tgt, rep,        \* the target, and each of its replicas
  w,               \* workers
  net,             \* commits under way
  done,            \* messages that the other consumer settled
  gone,            \* messages that a failover of the source lost, by itself: nothing of ours
  told,            \* messages that were reported as lost at the target
  crashes, fails, sfails,
  end              \* when nobody wants the link any more: how far its end is, and the mark that was asked for then
vars == <<sent, top, src, old, tgt, rep, w, net, done, gone, told, crashes, fails, sfails, end>>

Source == [free |-> {}, held |-> {}, other |-> {}, back |-> {}, seq |-> 0, taken |-> 0, released |-> 0, over |-> FALSE]
Target == [log |-> << >>, mark |-> 0, consumed |-> 0, credit |-> 0, over |-> FALSE]
Away == [pc |-> "away", prev |-> 0, after |-> 0, durable |-> 0]

Max(a, b) == IF a > b THEN a ELSE b
Lowest(S) == CHOOSE e \in S : \A f \in S : e[1] <= f[1]
Values(S) == {e[2] : e \in S}
Stored(s) == Values(s.free \cup s.held \cup s.other \cup s.back)
Logged(t) == {t.log[i] : i \in 1..Len(t.log)}
Pending(t) == Len(t.log) - t.consumed
Serves(side) == ~(FENCE /\ side.over)      \* those who worked before the link was ended

Init ==
  /\ sent = 0 /\ top = 0 /\ src = Source /\ old = Source /\ tgt = Target /\ rep = [r \in Replicas |-> Target]
  /\ w = [k \in Workers |-> Away] /\ net = {} /\ done = {} /\ gone = {} /\ told = {}
  /\ crashes = 0 /\ fails = 0 /\ sfails = 0 /\ end = [pc |-> "no", mark |-> 0]

(* Producers, and the other consumer of a queue. *)
Send ==
  /\ sent < Messages
  /\ sent' = sent + 1 /\ top' = Max(top, src.seq + 1)
  /\ src' = [src EXCEPT !.seq = @ + 1, !.free = @ \cup {<<src.seq + 1, sent + 1>>}]
  /\ UNCHANGED <<old, tgt, rep, w, net, done, gone, told, crashes, fails, sfails, end>>
Steal ==
  /\ Competes /\ src.free # {} /\ src.other = {}
  /\ src' = [src EXCEPT !.free = @ \ {Lowest(src.free)}, !.other = {Lowest(src.free)}]
  /\ UNCHANGED <<sent, top, old, tgt, rep, w, net, done, gone, told, crashes, fails, sfails, end>>
GiveBack ==
  /\ src.other # {}
  /\ src' = [src EXCEPT !.other = {}, !.back = @ \cup src.other]
  /\ UNCHANGED <<sent, top, old, tgt, rep, w, net, done, gone, told, crashes, fails, sfails, end>>
Settle ==
  /\ src.other # {}
  /\ src' = [src EXCEPT !.other = {}] /\ done' = done \cup Values(src.other)
  /\ UNCHANGED <<sent, top, old, tgt, rep, w, net, gone, told, crashes, fails, sfails, end>>

(* A worker begins: it asks the target for its mark. Below what the source has released, the target lost something: that
   is told, and accepted. *)
Ask(k) ==
  /\ w[k].pc = "away" /\ Serves(src) /\ Serves(tgt)
  /\ IF tgt.mark < src.released
     THEN /\ told' = told \cup (1..sent \ (Stored(src) \cup Logged(tgt) \cup done \cup gone))
          /\ tgt' = [tgt EXCEPT !.mark = src.released]
     ELSE UNCHANGED <<told, tgt>>
  /\ w' = [w EXCEPT ![k] = [pc |-> "works", prev |-> tgt'.mark, after |-> tgt'.mark, durable |-> 0]]
  /\ UNCHANGED <<sent, top, src, old, rep, net, done, gone, crashes, fails, sfails, end>>

(* 1 reserve *)
Reserve(k) ==
  /\ w[k].pc = "works" /\ tgt.credit = 0 /\ Pending(tgt) + tgt.credit < Limit /\ Serves(tgt)
  /\ tgt' = [tgt EXCEPT !.credit = @ + 1]
  /\ UNCHANGED <<sent, top, src, old, rep, w, net, done, gone, told, crashes, fails, sfails, end>>

(* 2 read: nothing is removed. What the link holds already comes first, then what is back, then what is new. The commit
   is sent at once, while earlier ones are still under way. *)
Back(s, after) ==                     \* in one script with the read
  LET low == {e \in s.back : e[1] <= Max(s.taken, after)} IN
  IF RENUMBER /\ low # {}
  THEN [s EXCEPT !.back = @ \ {Lowest(low)}, !.seq = @ + 1, !.free = @ \cup {<<s.seq + 1, Lowest(low)[2]>>}]
  ELSE s
Read(k) ==
  /\ w[k].pc = "works" /\ Cardinality(net) < 2 /\ Serves(src)
  /\ LET s == Back(src, w[k].after)
         mine == {e \in s.held : e[1] > w[k].after}
         fresh == IF s.back # {} THEN s.back ELSE s.free
         e == IF mine # {} THEN Lowest(mine) ELSE Lowest(fresh) IN
     /\ mine # {} \/ fresh # {}
     /\ src' = [s EXCEPT !.held = @ \cup {e}, !.free = @ \ {e}, !.back = @ \ {e},
                         !.taken = Max(Max(@, w[k].after), e[1])]
     /\ top' = Max(top, s.seq)
     /\ IF e[1] > w[k].after
        THEN /\ net' = net \cup {[prev |-> w[k].prev, entry |-> e]}
             /\ w' = [w EXCEPT ![k].prev = e[1], ![k].after = e[1]]
        ELSE UNCHANGED <<net, w>>       \* it came back from a failover: the mark is past it, it will be released
  /\ UNCHANGED <<sent, old, tgt, rep, done, gone, told, crashes, fails, sfails, end>>

(* 3 commit, whenever it arrives, and perhaps again later *)
Arrive(c) ==
  /\ IF /\ Serves(tgt)
        /\ MARK => c.entry[1] > tgt.mark
        /\ PREDECESSOR => c.prev <= tgt.mark
        /\ tgt.credit > 0
     THEN tgt' = [tgt EXCEPT !.log = Append(@, c.entry[2]), !.mark = Max(@, c.entry[1]), !.credit = @ - 1]
     ELSE UNCHANGED tgt
  /\ \/ net' = net \ {c}
     \/ UNCHANGED net
  /\ UNCHANGED <<sent, top, src, old, rep, w, done, gone, told, crashes, fails, sfails, end>>
Lose(c) ==
  /\ net' = net \ {c}
  /\ UNCHANGED <<sent, top, src, old, tgt, rep, w, done, gone, told, crashes, fails, sfails, end>>

(* 4 barrier *)
Secure(k) ==
  /\ w[k].pc = "works" /\ tgt.mark > w[k].durable
  /\ BARRIER => \A r \in Replicas : rep[r].mark >= tgt.mark
  /\ w' = [w EXCEPT ![k].durable = tgt.mark]
  /\ UNCHANGED <<sent, top, src, old, tgt, rep, net, done, gone, told, crashes, fails, sfails, end>>

(* 5 release *)
Release(k) ==
  /\ w[k].pc = "works" /\ w[k].durable > src.released /\ Serves(src)
  /\ src' = [src EXCEPT !.held = {e \in @ : e[1] > w[k].durable}, !.released = w[k].durable,
                        !.taken = Max(@, w[k].durable)]
  /\ UNCHANGED <<sent, top, old, tgt, rep, w, net, done, gone, told, crashes, fails, sfails, end>>

(* What a worker cannot know, it asks anew: after a gap, a loss, a crash. *)
Restart(k) ==
  /\ w[k].pc = "works" /\ crashes < MaxCrashes
  /\ crashes' = crashes + 1 /\ w' = [w EXCEPT ![k] = Away]
  /\ UNCHANGED <<sent, top, src, old, tgt, rep, net, done, gone, told, fails, sfails, end>>

(* Nobody wants the link any more, and one who ends it comes while workers go on: both ends hear of it first, then the
   source lets go of what the target has, and what else the link had in hand is for others. Who ends it may die, and
   come again. No failover is modelled with it: nothing waits for replicas here. *)
EndAtSource ==
  /\ Ends /\ end.pc = "no" /\ end' = [end EXCEPT !.pc = "source"] /\ src' = [src EXCEPT !.over = TRUE]
  /\ UNCHANGED <<sent, top, old, tgt, rep, w, net, done, gone, told, crashes, fails, sfails>>
EndAtTarget ==
  /\ end.pc = "source" /\ end' = [pc |-> "target", mark |-> tgt.mark]
  /\ tgt' = [tgt EXCEPT !.over = TRUE, !.credit = 0]
  /\ UNCHANGED <<sent, top, src, old, rep, w, net, done, gone, told, crashes, fails, sfails>>
GiveUp ==
  /\ end.pc = "target" /\ end' = [end EXCEPT !.pc = "over"]
  /\ src' = [src EXCEPT !.held = {}, !.free = @ \cup {e \in src.held : e[1] > end.mark}, !.released = Max(@, end.mark),
                       !.taken = end.mark]
  /\ UNCHANGED <<sent, top, old, tgt, rep, w, net, done, gone, told, crashes, fails, sfails>>
EndAgain ==
  /\ end.pc \in {"source", "target"} /\ crashes < MaxCrashes
  /\ crashes' = crashes + 1 /\ end' = [end EXCEPT !.pc = "no"]
  /\ UNCHANGED <<sent, top, src, old, tgt, rep, w, net, done, gone, told, fails, sfails>>

(* The target's consumers, its leases, its replicas. *)
Consume ==
  /\ Pending(tgt) > 0 /\ tgt' = [tgt EXCEPT !.consumed = @ + 1]
  /\ UNCHANGED <<sent, top, src, old, rep, w, net, done, gone, told, crashes, fails, sfails, end>>
Expire ==
  /\ tgt.credit > 0 /\ tgt' = [tgt EXCEPT !.credit = 0]
  /\ UNCHANGED <<sent, top, src, old, rep, w, net, done, gone, told, crashes, fails, sfails, end>>
Replicate(r) ==
  /\ rep[r] # tgt /\ rep' = [rep EXCEPT ![r] = tgt]
  /\ UNCHANGED <<sent, top, src, old, tgt, w, net, done, gone, told, crashes, fails, sfails, end>>
FailOver ==
  /\ fails < MaxTargetFailovers /\ fails' = fails + 1
  /\ \E r \in Replicas : tgt' = rep[r] /\ rep' = [q \in Replicas |-> rep[r]]
  /\ w' = [k \in Workers |-> Away]       \* they find its mark lower than it was
  /\ UNCHANGED <<sent, top, src, old, net, done, gone, told, crashes, sfails, end>>

(* The source's replica, and its failover: what it had not heard of is lost or is back. *)
Remember ==
  /\ sfails < MaxSourceFailovers /\ old # src /\ old' = src
  /\ UNCHANGED <<sent, top, src, tgt, rep, w, net, done, gone, told, crashes, fails, sfails, end>>
SourceFailOver ==
  /\ sfails < MaxSourceFailovers /\ sfails' = sfails + 1
  /\ src' = [old EXCEPT !.seq = IF JUMP THEN Max(old.seq, top) ELSE old.seq]
  /\ gone' = gone \cup (Stored(src) \ Stored(old))
  /\ w' = [k \in Workers |-> Away]       \* the run id is another one: they open it again
  /\ UNCHANGED <<sent, top, old, tgt, rep, net, done, told, crashes, fails, end>>

Next ==
  \/ Send \/ Steal \/ GiveBack \/ Settle \/ Consume \/ Expire \/ FailOver \/ Remember \/ SourceFailOver
  \/ EndAtSource \/ EndAtTarget \/ GiveUp \/ EndAgain
  \/ \E k \in Workers : Ask(k) \/ Reserve(k) \/ Read(k) \/ Secure(k) \/ Release(k) \/ Restart(k)
  \/ \E c \in net : Arrive(c) \/ Lose(c)
  \/ \E r \in Replicas : Replicate(r)
Spec == Init /\ [][Next]_vars

NothingLost == \A m \in 1..sent : m \in Stored(src) \cup Logged(tgt) \cup done \cup gone \cup told
NothingTwice == \A i, j \in 1..Len(tgt.log) : i # j => tgt.log[i] # tgt.log[j]
InOrder == ~Competes => \A i, j \in 1..Len(tgt.log) : i < j => tgt.log[i] < tgt.log[j]
NothingAtBoth ==                         \* what others may get, or had; a failover of the source may bring it back
  sfails = 0 => Logged(tgt) \cap (done \cup Values(src.free \cup src.other \cup src.back)) = {}
WithinLimit == tgt.credit >= 0 /\ Pending(tgt) + tgt.credit <= Limit
NothingTold == BARRIER => told = {}      \* with the barrier, no failover of the target loses what the source released
=================================================================================
