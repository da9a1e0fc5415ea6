// A client of nodes written with go-amqp as its documentation has it: each line that it prints is one row and what came of it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

const patience = 20 * time.Second

var ctx = context.Background()

func within() context.Context {
	limited, _ := context.WithTimeout(ctx, patience) //nolint:govet // the program ends soon
	return limited
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// condition is the AMQP error in an error of the library.
func condition(err error) string {
	var link *amqp.LinkError
	var answer *amqp.Error
	if errors.As(err, &link) && link.RemoteErr != nil {
		answer = link.RemoteErr
	} else if !errors.As(err, &answer) {
		return fmt.Sprint(err)
	}
	return string(answer.Condition)
}

func send(session *amqp.Session, queue string, options *amqp.SenderOptions, bodies ...string) {
	sender, err := session.NewSender(within(), queue, options)
	check(err)
	for _, body := range bodies {
		check(sender.Send(within(), amqp.NewMessage([]byte(body)), nil))
	}
	check(sender.Close(within()))
}

func receive(session *amqp.Session, queue string, options *amqp.ReceiverOptions, count int) string {
	receiver, err := session.NewReceiver(within(), queue, options)
	check(err)
	var bodies []string
	for len(bodies) < count {
		message, err := receiver.Receive(within(), nil)
		check(err)
		check(receiver.AcceptMessage(within(), message))
		bodies = append(bodies, string(message.GetData()))
	}
	check(receiver.Close(within()))
	return strings.Join(bodies, " ")
}

var rows = []struct {
	name string
	run  func(*amqp.Session) string
}{
	{"send, close, receive", func(s *amqp.Session) string {
		send(s, "go.first", nil, "one", "two")
		return receive(s, "go.first", nil, 2)
	}},
	{"sender settle modes", func(s *amqp.Session) string {
		for _, mode := range []amqp.SenderSettleMode{
			amqp.SenderSettleModeUnsettled, amqp.SenderSettleModeSettled, amqp.SenderSettleModeMixed,
		} {
			send(s, "go.modes", &amqp.SenderOptions{SettlementMode: mode.Ptr()}, fmt.Sprint(mode))
		}
		unsettled := amqp.SenderSettleModeUnsettled.Ptr()
		return receive(s, "go.modes", &amqp.ReceiverOptions{RequestedSenderSettleMode: unsettled}, 3)
	}},
	{"receiver settle mode second", func(s *amqp.Session) string {
		send(s, "go.second", nil, "one")
		return receive(s, "go.second", &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()}, 1)
	}},
	{"refused links", func(s *amqp.Session) string {
		var told []string
		_, err := s.NewReceiver(within(), "go.*", nil)
		told = append(told, condition(err))
		_, err = s.NewSender(within(), "go.*", nil)
		told = append(told, condition(err))
		_, err = s.NewSender(within(), "$cbs", nil)
		told = append(told, condition(err))
		send(s, "go.refused", nil, "goes on")
		return strings.Join(append(told, receive(s, "go.refused", nil, 1)), " ")
	}},
	{"drain", func(s *amqp.Session) string {
		receiver, err := s.NewReceiver(within(), "go.drain", &amqp.ReceiverOptions{Credit: -1})
		check(err)
		check(receiver.IssueCredit(10))
		check(receiver.DrainCredit(within(), nil))
		send(s, "go.drain", nil, "one")
		check(receiver.IssueCredit(1))
		message, err := receiver.Receive(within(), nil)
		check(err)
		check(receiver.AcceptMessage(within(), message))
		check(receiver.DrainCredit(within(), nil))
		return string(message.GetData())
	}},
	{"larger than the receiver takes", func(s *amqp.Session) string {
		send(s, "go.large", nil, strings.Repeat("x", 2000))
		receiver, err := s.NewReceiver(within(), "go.large", &amqp.ReceiverOptions{MaxMessageSize: 1000})
		check(err)
		_, err = receiver.Receive(within(), nil)
		return fmt.Sprint(condition(err), " ", len(receive(s, "go.large", nil, 1)))
	}},
	{"priorities of the header", func(s *amqp.Session) string {
		sender, err := s.NewSender(within(), "go.priorities", nil)
		check(err)
		for _, priority := range []uint8{0, 4, 9, 5} {
			message := amqp.NewMessage([]byte(fmt.Sprint(priority)))
			message.Header = &amqp.MessageHeader{Durable: true, Priority: priority}
			check(sender.Send(within(), message, nil))
		}
		return receive(s, "go.priorities", nil, 4)
	}},
	{"a delay, a moment and none", func(s *amqp.Session) string {
		sender, err := s.NewSender(within(), "go.later", nil)
		check(err)
		began := time.Now()
		notBefore := map[string]time.Duration{"delay": 300, "moment": 900, "none": 0}
		annotations := map[string]amqp.Annotations{
			"delay":  {"x-opt-delivery-delay": int64(300)},
			"moment": {"x-opt-delivery-time": began.Add(900 * time.Millisecond).UnixMilli()},
		}
		for body := range notBefore {
			message := amqp.NewMessage([]byte(body))
			message.Annotations = annotations[body]
			check(sender.Send(within(), message, nil))
		}
		for len(notBefore) > 0 {
			body := receive(s, "go.later", nil, 1)
			if time.Since(began) < (notBefore[body]-1)*time.Millisecond {
				return body + " came early"
			}
			delete(notBefore, body)
		}
		return "none early"
	}},
}

func main() {
	for _, row := range rows {
		connection, err := amqp.Dial(ctx, os.Args[1], &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
		check(err)
		session, err := connection.NewSession(ctx, nil)
		check(err)
		told, _ := json.Marshal([]string{row.name, attempt(row.run, session)})
		fmt.Println(string(told))
		_ = connection.Close()
	}
}

func attempt(run func(*amqp.Session) string, session *amqp.Session) (told string) {
	defer func() {
		if trouble := recover(); trouble != nil {
			told = fmt.Sprint("failed: ", trouble)
		}
	}()
	return run(session)
}
